package admin

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/lockproxy/lockproxy/backends/locks"
)

const (
	maxTimelines  = 1000 // names
	maxHappenings = 50   // of a name
	maxTimeName   = 1 << 10
	maxTimeText   = 128 // bytes of an owner or an address
)

// timelines are what the lock service saw happen to the names that were used last. Their methods are safe for concurrent use.
type timelines struct {
	mu  sync.Mutex
	lru *simplelru.LRU[locks.Key, []happening]
}

// A happening is an event, or several refusals in a row. Its name is that of its timeline.
type happening struct {
	kind                locks.EventKind
	handed, shared      bool
	holds, times        int32
	at                  time.Time
	owner, client, says string
	fence               int64
	waited              time.Duration
}

func newTimelines() *timelines {
	lru, err := simplelru.NewLRU[locks.Key, []happening](maxTimelines, nil)
	if err != nil {
		panic(err) // only for a size under 1
	}
	return &timelines{lru: lru}
}

// add remembers an event in the order of time.
func (t *timelines) add(e locks.Event) {
	if len(e.Name) > maxTimeName {
		return
	}
	h := happening{
		kind: e.Kind, handed: e.Handed, shared: e.Shared, holds: int32(e.Holds), times: 1, at: e.At,
		owner: kept(e.Owner), client: kept(e.Client), says: kept(e.Why), fence: e.Fence, waited: e.Waited,
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	all, _ := t.lru.Get(e.Key)
	if n := len(all); n > 0 && h.kind == locks.EventRefused && all[n-1].kind == locks.EventRefused && h.shared == all[n-1].shared {
		h.times += all[n-1].times
		all[n-1] = h
		return
	}
	if len(all) == maxHappenings {
		all = all[:copy(all, all[1:])]
	}
	i := len(all)
	for i > 0 && all[i-1].at.After(h.at) {
		i--
	}
	t.lru.Add(e.Key, slices.Insert(all, i, h))
}

// kept returns a copy of the beginning of a text, so that the text it was cut from can be freed.
func kept(text string) string {
	if adopted(text) != "" {
		text, _ = locks.ShownOwner(text)
	}
	return strings.Clone(text[:min(len(text), maxTimeText)])
}

// of is what happened to a name, the oldest first.
func (t *timelines) of(k locks.Key) []happening {
	t.mu.Lock()
	defer t.mu.Unlock()
	all, _ := t.lru.Peek(k)
	return slices.Clone(all)
}

// A happeningView is what this proxy saw happen to a lock.
type happeningView struct {
	Kind   string   `json:"kind"`
	Ago    int64    `json:"ago_ms"`
	Owner  textView `json:"owner"`
	Client textView `json:"client"`
	Fence  string   `json:"fence"` // empty: not known
	Waited int64    `json:"waited_ms"`
	Handed bool     `json:"handed,omitempty"` // it was next in line, and told of a release
	Shared bool     `json:"shared,omitempty"` // its owner reads
	Holds  int      `json:"holds"`
	Times  int      `json:"times"` // refusals in a row, of which this is the last
	Says   string   `json:"says"`
}

// view is the timeline of a name, and the address of the client that was granted the name with a fence.
func (t *timelines) view(k locks.Key, fence int64) (views []happeningView, holder string) {
	views = []happeningView{}
	for _, h := range t.of(k) {
		v := happeningView{
			Kind: string(h.kind), Ago: sinceMillis(h.at), Owner: short(h.owner), Client: short(h.client), Waited: millis(h.waited),
			Handed: h.handed, Shared: h.shared, Holds: int(h.holds), Times: int(h.times), Says: shown(h.says),
		}
		if h.fence != 0 {
			v.Fence = strconv.FormatInt(h.fence, 10)
		}
		if h.kind == locks.EventGranted && !h.shared && h.fence == fence {
			holder = v.Client.Text
		}
		views = append(views, v)
	}
	return views, holder
}
