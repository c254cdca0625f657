package peers

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/metrics"
)

const (
	every      = 20 * time.Second // between two announcements
	lives      = time.Minute      // how long an announcement counts
	soon       = time.Second      // between two while something is in the way
	retractFor = 2 * time.Second  // how long taking the last one back may take
	mostIDs    = 2000             // replication ids that are remembered, of a Cluster's masters and from before failovers
)

// A Board keeps announcements; *locks.Service is one.
type Board interface {
	Post(context.Context, locks.PostRequest) ([]locks.Notice, error)
}

// Options are read once by New.
type Options struct {
	Board    Board
	Upstream func(context.Context) []string // replication ids of the upstream's masters, as far as these say so
	Proxy    string                         // what people call this proxy
	Patterns []Pattern                      // of this proxy
	Log      *slog.Logger                   // default slog.Default()
	ID       string                         // of this proxy; default one that no other has
}

// A Peer is another proxy, as last heard of.
type Peer struct {
	Record
	ID         string
	Since      time.Time // when these patterns of it were first heard
	Same       bool      // it is, or may be, of the same upstream
	Unreadable error     // the record's; nil: it is understood
	Clashes    []string  // why its patterns do not go with ours; empty: they do
	Warnings   []string  // differences that do not matter for exclusion
}

// Conflicts reports whether its patterns do not go with ours.
func (p *Peer) Conflicts() bool { return len(p.Clashes) > 0 }

// An Announcer announces one proxy, and knows what others announce. It is made by New; its methods are safe for
// concurrent use, but Announce and Run, of which one runs at a time.
type Announcer struct {
	opt     Options
	adopts  bool // some pattern does
	now     atomic.Pointer[outlook]
	unheard atomic.Int64 // announcements that no majority took

	// Of Announce alone.
	sequence int64
	upstream map[string]time.Time // replication ids, by when they were last seen
	known    map[string]Peer      // by id
	asked    time.Time            // when the upstream was last asked for them
	complete bool                 // a majority has been heard once
	failed   bool                 // the last announcement
	logged   string               // clashes, as last logged
	loggedAt time.Time
	warned   string
}

// An outlook is what is known of the other proxies. It is immutable.
type outlook struct {
	ours  *Record // nil: nothing was announced yet
	peers []Peer
	may   []error // by pattern of ours: why it must not be adopted
}

// A ConflictError reports that a pattern must not be adopted because of another proxy.
type ConflictError struct{ Why string }

func (e *ConflictError) Error() string { return e.Why }

// errUnheard is the answer before the first announcement.
var errUnheard = &ConflictError{"this proxy has not yet heard from the lock nodes what other proxies have"}

// New makes an Announcer. Nothing may be adopted before its first announcement.
func New(o Options) *Announcer {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.ID == "" {
		o.ID = strings.ToLower(rand.Text()[:16])
	}
	if same, err := Parse(Record{Format: Format, Patterns: o.Patterns}.Text()); err == nil {
		o.Patterns = same.Patterns // as others read them, whatever their bytes are
	}
	a := &Announcer{opt: o, upstream: map[string]time.Time{}, known: map[string]Peer{}}
	a.adopts = slices.ContainsFunc(o.Patterns, func(p Pattern) bool { return Adopts(p.Mode) })
	a.now.Store(&outlook{may: a.unheardBecause(errUnheard)})
	return a
}

// unheardBecause returns, for each pattern, why it must not be adopted before the first announcement was taken.
func (a *Announcer) unheardBecause(err error) []error {
	may := make([]error, len(a.opt.Patterns))
	for i, p := range a.opt.Patterns {
		if Adopts(p.Mode) {
			may[i] = err
		}
	}
	return may
}

// May returns nil if the keys of the pattern with this index may be adopted now. The error is a *ConflictError, or a
// *locks.QuorumError before the first announcement was taken by a majority.
func (a *Announcer) May(pattern int) error { return a.now.Load().may[pattern] }

// AnyOn reports whether another proxy of the same upstream has a key in the mode on, or may have. It asks the lock nodes: a
// proxy that is on has told a majority before it grants anything, so a majority that is asked later knows it.
func (a *Announcer) AnyOn(ctx context.Context, db int, key string) (bool, error) {
	now := a.now.Load()
	if now.ours == nil {
		return true, nil
	}
	on := func(p *Peer) bool {
		return p.Unreadable != nil || sameUpstream(now.ours, &p.Record) && !slices.Contains([]string{Off, Observe, Both}, p.modeOf(db, key))
	}
	for i := range now.peers {
		if on(&now.peers[i]) {
			return true, nil
		}
	}
	notices, err := a.opt.Board.Post(ctx, locks.PostRequest{Notice: locks.Notice{ID: a.opt.ID + "?"}}) // nobody's: it only reads
	for _, p := range a.read(notices) {
		if on(&p) {
			return true, nil
		}
	}
	return false, err
}

// Peers are the other proxies that are known to live, by their ids.
func (a *Announcer) Peers() []Peer { return a.now.Load().peers }

// Run announces until ctx ends, and then takes the announcement back.
func (a *Announcer) Run(ctx context.Context) {
	for pause := a.pause(); ; {
		select {
		case <-time.After(pause):
			a.Announce(ctx)
			pause = a.pause()
		case <-ctx.Done():
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), retractFor)
			defer cancel()
			_, _ = a.opt.Board.Post(ctx, locks.PostRequest{Notice: locks.Notice{ID: a.opt.ID}, Unused: true}) // else it runs out
			return
		}
	}
}

// pause returns how long to wait until the next announcement: not long while something is in the way of adoption, or of
// announcing.
func (a *Announcer) pause() time.Duration {
	if a.failed || slices.ContainsFunc(a.now.Load().may, func(err error) bool { return err != nil }) {
		return soon
	}
	return every
}

// Announce announces once, and takes in what others announce. It is done once before clients are served, so that
// they need not be refused.
func (a *Announcer) Announce(ctx context.Context) {
	ours := a.record(ctx)
	notices, err := a.opt.Board.Post(ctx, locks.PostRequest{
		Notice: locks.Notice{ID: a.opt.ID, Text: ours.Text()}, Keep: lives, Unused: !a.adopts,
	})
	if errors.Is(err, locks.ErrUnused) {
		return // nobody has a lock, nor adopts one
	}
	heard := a.read(notices)
	for id, p := range heard {
		p.Since = time.Now()
		if before, heardOf := a.known[id]; heardOf && slices.Equal(before.Patterns, p.Patterns) {
			p.Since = before.Since
		}
		heard[id] = p
	}
	if a.failed = err != nil; err == nil {
		a.complete, a.known = true, heard
	} else {
		a.unheard.Add(1)
		for id, p := range heard {
			if old, ok := a.known[id]; !ok || old.Sequence <= p.Sequence {
				a.known[id] = p
			}
		}
	}
	out := &outlook{ours: ours, may: make([]error, len(ours.Patterns))}
	if quorum := (*locks.QuorumError)(nil); !a.complete && errors.As(err, &quorum) {
		out.may = a.unheardBecause(quorum)
	} else if !a.complete {
		out.may = a.unheardBecause(errUnheard)
	}
	for _, id := range slices.Sorted(maps.Keys(a.known)) {
		out.peers = append(out.peers, a.judge(a.known[id], ours, out.may))
	}
	a.now.Store(out)
	a.log(out.peers)
}

// record returns what is announced now.
func (a *Announcer) record(ctx context.Context) *Record {
	if now := time.Now(); len(a.upstream) == 0 || now.Sub(a.asked) >= every {
		a.asked = now
		for _, id := range a.opt.Upstream(ctx) {
			if len(a.upstream) < mostIDs {
				a.upstream[id] = now
			}
		}
	}
	// Ids that the upstream had a moment ago are kept: other proxies may not have seen yet that they have changed. While
	// it does not answer, all are kept.
	latest := time.Time{}
	for _, at := range a.upstream {
		if at.After(latest) {
			latest = at
		}
	}
	maps.DeleteFunc(a.upstream, func(_ string, at time.Time) bool { return latest.Sub(at) > lives })
	a.sequence++
	return &Record{
		Format: Format, Proxy: a.opt.Proxy, Sequence: a.sequence,
		Upstream: slices.Sorted(maps.Keys(a.upstream)), Patterns: a.opt.Patterns,
	}
}

// read returns the latest record of each other proxy, by id.
func (a *Announcer) read(notices []locks.Notice) map[string]Peer {
	heard := map[string]Peer{}
	for _, n := range notices {
		if n.ID == a.opt.ID {
			continue
		}
		p := Peer{ID: n.ID}
		p.Record, p.Unreadable = Parse(n.Text)
		if old, ok := heard[n.ID]; !ok || old.Sequence < p.Sequence {
			heard[n.ID] = p
		}
	}
	return heard
}

// judge compares another proxy with ours, and adds to may the patterns that it is in the way of.
func (a *Announcer) judge(p Peer, ours *Record, may []error) Peer {
	p.Same = p.Unreadable != nil || sameUpstream(ours, &p.Record)
	if !p.Same {
		return p
	}
	name := p.name(p.ID)
	clash := func(pattern int, text string) {
		if !slices.Contains(p.Clashes, text) {
			p.Clashes = append(p.Clashes, text)
		}
		if pattern != none && Adopts(ours.Patterns[pattern].Mode) {
			may[pattern] = &ConflictError{"proxy " + name + ": " + text}
		}
	}
	if p.Unreadable != nil {
		for i, o := range ours.Patterns {
			if Adopts(o.Mode) {
				clash(i, p.Unreadable.Error())
			}
		}
		return p
	}
	about := ""
	if len(p.Upstream) == 0 || len(ours.Upstream) == 0 {
		about = " (whether it has the same upstream is not known: one of the two could not ask it for INFO replication)"
	}
	for _, c := range Compare(ours.Patterns, p.Patterns) {
		clash(c.Ours, c.text(ours.Patterns, p.Patterns)+about)
	}
	p.Warnings = Differences(ours.Patterns, p.Patterns)
	return p
}

// log says what is in the way: at once, and again every 20 s.
func (a *Announcer) log(peers []Peer) {
	var clashes, warnings []string
	for _, p := range peers {
		for _, c := range p.Clashes {
			clashes = append(clashes, p.name(p.ID)+": "+c)
		}
		for _, w := range p.Warnings {
			warnings = append(warnings, p.name(p.ID)+": "+w)
		}
	}
	text, warning := strings.Join(clashes, "; "), strings.Join(warnings, "; ")
	if since := time.Since(a.loggedAt); text != "" && (text != a.logged || since >= every) {
		a.loggedAt = time.Now()
		a.opt.Log.Error("adoption conflict: proxies of one upstream have a key in modes that are no neighbours; where it is a lock, it is refused", "proxies", text)
	} else if text == "" && a.logged != "" {
		a.opt.Log.Info("adoption conflict is over: the modes of all proxies go together")
	}
	if warning != "" && warning != a.warned {
		a.opt.Log.Warn("proxies adopt the same keys in different ways", "proxies", warning)
	}
	a.logged, a.warned = text, warning
}

// Report implements metrics.Reporter.
func (a *Announcer) Report(r *metrics.Report) {
	conflicts, others, refused := 0, 0, 0
	now := a.now.Load()
	for i := range now.peers {
		if now.peers[i].Same {
			others++
		}
		if now.peers[i].Conflicts() {
			conflicts++
		}
	}
	for _, err := range now.may {
		if err != nil {
			refused++
		}
	}
	r.Gauge("lockproxy_adopt_peers", "Other proxies of the same upstream that have announced themselves at the lock nodes within the last minute.", float64(others))
	r.Gauge("lockproxy_adopt_conflicts", "Those of them whose patterns do not go with this proxy's: a key is a lock at one and none at the other.", float64(conflicts))
	r.Gauge("lockproxy_adopt_patterns_stopped", "Patterns of this proxy whose keys are refused, because of such a conflict or because no majority of the lock nodes was heard yet.", float64(refused))
	r.Counter("lockproxy_adopt_announcements_lost_total", "Announcements of this proxy that no majority of the lock nodes took.", a.unheard.Load())
}

// Judge compares announcements with each other, and with ours if that has patterns. It is for lockproxy check, which is no
// proxy itself. The texts name both sides.
func Judge(ours *Record, notices []locks.Notice) (texts []string) {
	a := &Announcer{}
	known := a.read(notices)
	ids := slices.Sorted(maps.Keys(known))
	compare := func(name string, r *Record, p Peer) {
		may := make([]error, len(r.Patterns))
		for _, c := range a.judge(p, r, may).Clashes {
			texts = append(texts, fmt.Sprintf("proxy %s and %s: %s", p.name(p.ID), name, c))
		}
	}
	for i, id := range ids {
		p := known[id]
		if ours != nil {
			compare("these settings (here)", ours, p)
		}
		if p.Unreadable != nil {
			continue
		}
		for _, other := range ids[i+1:] {
			compare("proxy "+p.name(id)+" (here)", &p.Record, known[other])
		}
	}
	return texts
}
