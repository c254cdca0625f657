package observe

import (
	"cmp"
	"slices"
	"time"

	"github.com/lockproxy/lockproxy/backends/glob"
)

// A Report is what an Observer has seen.
type Report struct {
	On        bool   `json:"on"`  // there is something to be seen: a setting says so
	All       bool   `json:"all"` // all traffic is looked at
	Seconds   int64  `json:"seconds"`
	Keys      int    `json:"keys"`      // that are followed now
	Full      bool   `json:"full"`      // so many keys or rows are followed that the oldest are forgotten
	Unseen    Unseen `json:"unseen"`    // commands on followed keys whose replies were not seen
	KeyEvents int64  `json:"keyevents"` // subscriptions to __keyevent channels, which name no key
	Rows      []Row  `json:"rows"`      // the most used first
}

// Unseen counts commands on keys that are followed whose replies could not be looked at.
type Unseen struct {
	InMulti   int64 `json:"in_multi"`
	Uncounted int64 `json:"passthrough"`
}

// A Row is of the keys of one shape, or of a script whose text has not come by.
type Row struct {
	DB      int    `json:"db"`
	Keys    string `json:"keys"` // their shape
	Example string `json:"example"`
	Pattern string `json:"pattern,omitempty"` // that matches them
	Mode    string `json:"mode"`              // report, observe, on
	Script  string `json:"script,omitempty"`  // the SHA-1, if nothing else is known of it
	Idiom   string `json:"idiom"`
	Looks   string `json:"looks_like"` // a guess

	Clients   int              `json:"clients"` // connections in the last ten to twenty minutes
	Rate      float64          `json:"acquired_per_s"`
	Acquired  int64            `json:"acquired"`
	Contended int64            `json:"contended"`
	NoQuorum  int64            `json:"noquorum"`
	Held      Held             `json:"held"`
	TTL       TTL              `json:"ttl"`
	Classes   map[string]int64 `json:"classes"` // calls, by class

	Would   string `json:"would_be"` // adopted, refused, partly refused, with the word that a pattern needs for it; empty: not known
	Allowed int64  `json:"calls_adopted"`
	Refused int64  `json:"calls_refused"`
	Why     string `json:"why"` // of the last refusal

	Hazards []Hazard `json:"hazards"`
}

// Held is for how long locks were held, of those whose release was seen. Times are in milliseconds.
type Held struct {
	Count int64 `json:"count"`
	P50   int64 `json:"p50_ms"`
	P99   int64 `json:"p99_ms"`
	Most  int64 `json:"max_ms"`
}

// TTL are the ttls that locks were taken with, in milliseconds; 0: none had one.
type TTL struct {
	Least   int64 `json:"min_ms"`
	Most    int64 `json:"max_ms"`
	Endless int64 `json:"endless"` // locks that were taken without one
}

// A Hazard has been seen.
type Hazard struct {
	Name  string `json:"name"`
	Means string `json:"means"`
	Count int64  `json:"count"`
	Key   string `json:"key"` // the first
}

// Report says what has been seen so far.
func (o *Observer) Report() Report {
	if o == nil {
		return Report{Rows: []Row{}}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	now := o.opt.Now()
	for _, k := range o.keys.Values() {
		k.judge(now)
	}
	since := now.Sub(o.began)
	r := Report{On: true, All: o.opt.All, Seconds: int64(since.Seconds()), Keys: o.keys.Len(), Unseen: o.unseen, KeyEvents: o.events, Rows: []Row{}}
	r.Full = o.keys.Len() == maxKeys || o.rows.Len() == maxRows
	for _, row := range slices.Concat(o.rows.Values(), o.unknown.Values()) {
		r.Rows = append(r.Rows, row.report(since))
	}
	slices.SortStableFunc(r.Rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(b.Rate, a.Rate), cmp.Compare(b.Acquired, a.Acquired), cmp.Compare(a.DB, b.DB), cmp.Compare(a.Keys, b.Keys))
	})
	return r
}

// Matching is the report with the rows only whose shape, or example, match a pattern as of KEYS.
func (r Report) Matching(pattern string) Report {
	g, _, _ := glob.Parse(pattern)
	r.Rows = slices.DeleteFunc(slices.Clone(r.Rows), func(row Row) bool { return !g.Matches(row.Keys) && !g.Matches(row.Example) })
	return r
}

func (r *row) report(since time.Duration) Row {
	v := Row{
		DB: r.db, Keys: printable(r.shape), Example: printable(r.example), Mode: r.mode().String(), Script: r.script,
		Idiom: idiomOf(r.forms), Looks: r.guess.text(r.forms), Clients: r.clients.size(since),
		Rate: r.rate.perSecond(since), Acquired: r.taken, Contended: r.contended, NoQuorum: r.noQuorum,
		Held:    Held{Count: r.held.count, P50: millis(r.held.quantile(.5)), P99: millis(r.held.quantile(.99)), Most: millis(r.held.most)},
		TTL:     TTL{Least: millis(r.ttls.least), Most: millis(r.ttls.most), Endless: r.ttls.endless},
		Allowed: r.allowed, Refused: r.refused, Why: printable(r.why), Classes: map[string]int64{}, Hazards: []Hazard{},
	}
	if r.pattern != nil {
		v.Pattern = r.pattern.Glob
	}
	switch {
	case r.refused == 0 && r.allowed == 0:
	case r.refused == 0:
		v.Would = "adopted"
	case r.allowed == 0:
		v.Would = "refused"
	default:
		v.Would = "partly refused"
	}
	if r.word != "" && r.allowed > 0 {
		v.Would += " with " + r.word
	}
	if r.script != "" { // its calls are no acquisitions
		v.Idiom += " (" + r.script[:8] + "…)"
		v.Why = "its text has not come by: only EVALSHA was sent"
	}
	for class, n := range r.calls {
		v.Classes[string(class)] = n
	}
	for h, seen := range r.hazards {
		if seen.count > 0 {
			v.Hazards = append(v.Hazards, Hazard{Name: described[h].name, Means: described[h].means, Count: seen.count, Key: printable(seen.key)})
		}
	}
	return v
}

func millis(d time.Duration) int64 { return d.Milliseconds() }
