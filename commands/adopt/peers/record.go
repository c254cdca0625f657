package peers

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/lockproxy/lockproxy/backends/glob"
)

// Modes, in the order in which neighbours stand; observe stands with off.
const (
	Off     = "off"
	Observe = "observe"
	Both    = "both"
	On      = "on"
)

// Adopts reports whether the lock nodes decide keys of a mode, alone or together with the upstream.
func Adopts(mode string) bool { return mode == Both || mode == On }

// Neighbours reports whether proxies may have a key in these two modes at the same time. A mode that is not known
// here is its own neighbour alone.
func Neighbours(a, b string) bool {
	rank := map[string]int{Off: 1, Observe: 1, Both: 2, On: 3}
	ra, rb := rank[a], rank[b]
	if ra == 0 || rb == 0 {
		return a == b
	}
	return max(ra, rb)-min(ra, rb) <= 1
}

// A Pattern is one of --adopt as it is announced.
type Pattern struct {
	Glob     string `json:"glob"`
	DB       int    `json:"db"` // -1: every database
	Mode     string `json:"mode"`
	As       string `json:"as"`
	NoExpiry string `json:"no-expiry"`
	Flush    string `json:"flush,omitempty"` // empty: keep
	Guard    bool   `json:"guard"`

	Timestamps string `json:"timestamps,omitempty"` // empty: off
	FenceKey   string `json:"fence-key,omitempty"`  // empty: none
}

// String is the pattern as --adopt takes it, down to its mode.
func (p Pattern) String() string {
	s := strings.ReplaceAll(p.Glob, " ", `\x20`)
	if p.DB >= 0 {
		s += fmt.Sprintf(" db=%d", p.DB)
	}
	return s + " mode=" + p.Mode
}

// Format is that of records. It grows when a proxy that does not know the new one would read it wrongly; fields
// may be added without that.
const Format = 1

// A Record is what one proxy announces.
type Record struct {
	Format   int       `json:"format"`
	Proxy    string    `json:"proxy"`    // what people call it: host and address
	Sequence int64     `json:"sequence"` // of its records the one with the largest is the latest
	Upstream []string  `json:"upstream"` // replication ids; empty: not known
	Patterns []Pattern `json:"patterns"` // the first that matches a key counts
}

// Text is the record as it is announced.
func (r Record) Text() string {
	b, _ := json.Marshal(r) // strings and numbers always can
	return string(b)
}

// Parse reads a record. One of a later format has its fields as far as they can be read.
func Parse(text string) (Record, error) {
	var r Record
	err := json.Unmarshal([]byte(text), &r)
	switch {
	case err != nil:
		return r, fmt.Errorf("announces what cannot be read: %w", err)
	case r.Format < 1:
		return r, errors.New("announces what cannot be read: it has no format")
	case r.Format > Format:
		return r, fmt.Errorf("announces in format %d, and this version reads %d", r.Format, Format)
	}
	return r, nil
}

// sameUpstream reports whether two records are, or may be, of proxies of one upstream.
func sameUpstream(a, b *Record) bool {
	return len(a.Upstream) == 0 || len(b.Upstream) == 0 ||
		slices.ContainsFunc(a.Upstream, func(id string) bool { return slices.Contains(b.Upstream, id) })
}

// modeOf returns the mode of a key: that of the first pattern that matches it.
func (r *Record) modeOf(db int, key string) string {
	for _, p := range r.Patterns {
		if g, _, _ := glob.Parse(p.Glob); (p.DB < 0 || p.DB == db) && g.Matches(key) {
			return p.Mode
		}
	}
	return Off
}

// name is the proxy for people.
func (r *Record) name(id string) string { return cmp.Or(r.Proxy, "unknown") + " (" + id + ")" }
