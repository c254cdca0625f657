package quorum

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/nodekeys"
	"github.com/lockproxy/lockproxy/scripts"
)

// lockOpen takes a lock without an end.
func lockOpen(t *testing.T, s *proxy) locks.Grant {
	t.Helper()
	a, err := s.Lock(t.Context(), locks.LockRequest{Key: jobKey, Owner: "alice", Open: true})
	if err != nil || !a.Granted {
		t.Fatalf("%+v, %v", a, err)
	}
	return a.Grant
}

// A helper is one more proxy on the nodes of a test, which ends with stop.
type helper struct {
	*proxy
	stop context.CancelFunc
}

func (s *timeless) another(t *testing.T) *helper {
	t.Helper()
	o := s.opts
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	p, err := newProxy(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := p.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	stop := func() { cancel(); <-ended }
	t.Cleanup(stop)
	return &helper{p, stop}
}

// renew moves the end of alice's lock, or takes it away.
func renewTo(t *testing.T, s *proxy, g locks.Grant, ttl time.Duration) {
	t.Helper()
	if _, err := s.Service.Renew(t.Context(), locks.RenewRequest{Key: jobKey, Owner: "alice", Fence: g.Fence, TTL: ttl, Open: ttl == 0}); err != nil {
		t.Fatal(err)
	}
}

func isHeld(t *testing.T, s *proxy, want bool, open bool) {
	t.Helper()
	if r := read(t, s); r.Held != want || r.Open != open {
		t.Fatalf("after %v: %+v", s.Store.Now()-time.Hour, r)
	}
}

// TestOpen: a lock without an end is renewed while a proxy with RenewEndless lives: by the proxy that granted it, or else by
// another one.
func TestOpen(t *testing.T) {
	t.Parallel()
	inBubble(t, 3, testOptions{MaxTTL: 6 * time.Second, MaxHold: 24 * time.Hour, RenewEndless: true}, func(t *testing.T, s *timeless) {
		granted := s.another(t)
		renewals := func(p *proxy, whose string) int64 { return counter(p, "open_renewals_total", "granted", whose) }
		g := lockOpen(t, granted.proxy)
		time.Sleep(time.Minute)
		isHeld(t, s.proxy, true, true)
		if r := read(t, s.proxy); r.Fence != g.Fence || r.Remaining > 6*time.Second {
			t.Errorf("%+v, granted %+v", r, g)
		}
		if n := renewals(granted.proxy, "own"); n < 15 || n > 35 || renewals(granted.proxy, "elsewhere") != 0 {
			t.Errorf("%d renewals in 30 thirds of a lease by the proxy that granted it", n)
		}
		if n := renewals(s.proxy, "elsewhere"); n > 3 {
			t.Errorf("%d renewals by another, though it was not due", n)
		}
		if n := counter(s.proxy, "open"); n != 1 {
			t.Errorf("%d locks without an end", n)
		}
		granted.stop()
		time.Sleep(time.Minute)
		isHeld(t, s.proxy, true, true)
		if n := renewals(s.proxy, "elsewhere"); n < 15 {
			t.Errorf("%d renewals of another's lock", n)
		}
		refused(t, s.proxy, "job", "bob", time.Second)
	})
}

// TestOpen_Lapses: a lock without an end lapses when no proxy with RenewEndless is left.
func TestOpen_Lapses(t *testing.T) {
	t.Parallel()
	inBubble(t, 3, testOptions{MaxTTL: 6 * time.Second}, func(t *testing.T, s *timeless) {
		lockOpen(t, s.proxy)
		time.Sleep(5 * time.Second)
		isHeld(t, s.proxy, true, true)
		time.Sleep(2 * time.Second)
		isHeld(t, s.proxy, false, false)
	})
}

// TestOpen_End: a renewal through any proxy gives a lock an end, or takes the end away; with an end no proxy renews it.
func TestOpen_End(t *testing.T) {
	t.Parallel()
	for _, own := range []bool{true, false} {
		inBubble(t, 3, testOptions{MaxTTL: 6 * time.Second, RenewEndless: true}, func(t *testing.T, s *timeless) {
			other := s.another(t)
			by := other.proxy
			if own {
				by = s.proxy
			}
			g := lockOpen(t, s.proxy)
			time.Sleep(30 * time.Second)
			renewTo(t, by, g, 5*time.Second)
			isHeld(t, other.proxy, true, false)
			time.Sleep(4 * time.Second)
			isHeld(t, other.proxy, true, false)
			renewTo(t, by, g, 0)
			isHeld(t, s.proxy, true, true)
			time.Sleep(30 * time.Second)
			isHeld(t, s.proxy, true, true)
			renewTo(t, by, g, time.Second)
			time.Sleep(1100 * time.Millisecond)
			isHeld(t, s.proxy, false, false)
			time.Sleep(30 * time.Second)
			isHeld(t, s.proxy, false, false)
		})
	}
}

// TestOpen_Released: a lock without an end that is given back is free at once, and stays free.
func TestOpen_Released(t *testing.T) {
	t.Parallel()
	inBubble(t, 3, testOptions{MaxTTL: 6 * time.Second, RenewEndless: true}, func(t *testing.T, s *timeless) {
		other := s.another(t)
		lockOpen(t, s.proxy)
		time.Sleep(30 * time.Second)
		unlock(t, other.proxy, "job", "alice", 0)
		isHeld(t, s.proxy, false, false)
		lock(t, other.proxy, "job", "alice", 6*time.Second)
		time.Sleep(5 * time.Second)
		isHeld(t, s.proxy, true, false)
		time.Sleep(2 * time.Second)
		isHeld(t, s.proxy, false, false)
	})
}

// TestOpen_MaxHold: a lock without an end lapses when max-hold is over. Before that it is given an end, and one proxy
// logs one line.
func TestOpen_MaxHold(t *testing.T) {
	t.Parallel()
	for _, most := range []time.Duration{time.Minute, 5 * time.Second} {
		var log bytes.Buffer
		o := testOptions{MaxTTL: 6 * time.Second, MaxHold: most, RenewEndless: true, Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelError}))}
		inBubble(t, 3, o, func(t *testing.T, s *timeless) {
			other := s.another(t)
			lockOpen(t, s.proxy)
			time.Sleep(max(0, most-10*time.Second))
			if most == time.Minute {
				isHeld(t, s.proxy, true, true)
			}
			time.Sleep(min(most-time.Second, 9*time.Second))
			isHeld(t, s.proxy, true, false)
			time.Sleep(2 * time.Second)
			isHeld(t, s.proxy, false, false)
			if n := counter(s.proxy, "open_lapsed_total") + counter(other.proxy, "open_lapsed_total"); n != 1 {
				t.Errorf("%d lapsed", n)
			}
		})
		if n := strings.Count(log.String(), "lock without an end lapses"); n != 1 {
			t.Errorf("%d lines: %s", n, log.String())
		}
	}
}

// TestOpen_NodesForget: a node that restarts gets the lock back, so that the lock outlives the restart of every node, one
// by one.
func TestOpen_NodesForget(t *testing.T) {
	t.Parallel()
	inBubble(t, 3, testOptions{MaxTTL: 6 * time.Second, RenewEndless: true, RestartGrace: "safe"}, func(t *testing.T, s *timeless) {
		lockOpen(t, s.proxy)
		for _, n := range s.nodes {
			time.Sleep(30 * time.Second)
			n.Del(nodekeys.Lock("lockproxy:", jobKey))
		}
		time.Sleep(30 * time.Second)
		r, err := s.Service.Inspect(t.Context(), jobKey)
		if err != nil || r.Holding.Votes != 3 || !r.Holding.Open {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// TestOpen_ReleasedWhereNodesForgot: where a majority got the lock back from a renewal, another proxy cannot vouch for the
// grant, and its UNLOCK fails. But the lock is free afterwards, and no proxy renews it.
func TestOpen_ReleasedWhereNodesForgot(t *testing.T) {
	t.Parallel()
	inBubble(t, 3, testOptions{MaxTTL: 6 * time.Second, RenewEndless: true, RestartGrace: "safe"}, func(t *testing.T, s *timeless) {
		granted := s.another(t)
		g := lockOpen(t, granted.proxy)
		for _, n := range s.nodes[:2] {
			time.Sleep(10 * time.Second)
			n.Del(nodekeys.Lock("lockproxy:", jobKey))
		}
		time.Sleep(10 * time.Second)
		isHeld(t, s.proxy, true, true)
		for _, fence := range []int64{g.Fence - 1, g.Fence} {
			isHeld(t, s.proxy, true, true)
			if _, err := s.Unlock(t.Context(), locks.UnlockRequest{Key: jobKey, Owner: "alice", Fence: fence}); !errors.Is(err, locks.ErrLost) {
				t.Error(err)
			}
		}
		isHeld(t, s.proxy, false, false)
		time.Sleep(20 * time.Second)
		isHeld(t, s.proxy, false, false)
		lock(t, s.proxy, "job", "bob", time.Second)
	})
}

// TestRenewEndless_EndUnderWay: RenewEndless does not undo a renewal that gives the lock an end on nodes which that has reached, and
// renews nothing if the renewal may have been answered.
func TestRenewEndless_EndUnderWay(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		ended int // so many nodes have a version with an end
		down  int // so many, from the last, do not answer
		want  locks.EndlessRenewals
	}{
		{"none", 0, 0, locks.EndlessRenewals{Open: 1, Adopted: 1}},
		{"a minority", 1, 0, locks.EndlessRenewals{Open: 1, Adopted: 1}},
		{"a minority, and one is silent", 1, 1, locks.EndlessRenewals{Open: 1, Missed: 1}},
		{"a majority", 2, 0, locks.EndlessRenewals{}},
		{"all", 3, 0, locks.EndlessRenewals{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, 3, testOptions{MaxTTL: 6 * time.Second}, func(t *testing.T, s *timeless) {
				lockOpen(t, s.proxy)
				other := s.another(t)
				if _, err := other.Store.RenewEndless(t.Context(), time.Hour); err != nil { // all have it
					t.Fatal(err)
				}
				time.Sleep(3500 * time.Millisecond)
				record := nodekeys.Lock("lockproxy:", jobKey)
				for _, n := range s.nodes[:tt.ended] {
					n.HSet(record, "l", "of a renewal that gives an end")
				}
				for _, n := range s.nodes[3-tt.down:] {
					n.SetError("LOADING")
				}
				next := s.nodes[min(tt.ended, 2)] // the first without an end, if there is one
				before := next.HGet(record, "e")
				got, err := other.Store.RenewEndless(t.Context(), time.Hour)
				if err != nil || !reflect.DeepEqual(got, tt.want) {
					t.Errorf("%+v, %v", got, err)
				}
				time.Sleep(100 * time.Millisecond) // the node may be one that the quorum did not need
				if after := next.HGet(record, "e"); (after != before) != (tt.want.Adopted > 0) {
					t.Errorf("a lease without an end was until %s, and is now until %s", before, after)
				}
				for i, n := range s.nodes[:tt.ended] {
					if l := n.HGet(record, "l"); strings.HasPrefix(l, openMark) {
						t.Errorf("node %d: the renewal is taken back by %s", i, l)
					}
				}
			})
		})
	}
}

// TestRenewEndless_LapsedWhereNotNoted: a renewal through another proxy gave the lock an end, and that is over. One node has
// missed the renewal, and another one the note before it. These two do not become a quorum that has the lock again.
func TestRenewEndless_LapsedWhereNotNoted(t *testing.T) {
	t.Parallel()
	inBubble(t, 3, testOptions{MaxTTL: 6 * time.Second}, func(t *testing.T, s *timeless) {
		g := lockOpen(t, s.proxy)
		other := s.another(t)
		if _, err := other.Store.RenewEndless(t.Context(), time.Hour); err != nil { // all have it
			t.Fatal(err)
		}
		time.Sleep(2100 * time.Millisecond)
		s.failScripts(map[int]*scripts.Script{0: scripts.Renew, 2: scripts.Note})
		renewTo(t, other.proxy, g, 100*time.Millisecond)
		s.failScripts(nil)
		time.Sleep(200 * time.Millisecond)
		if s.left(0) <= 0 || s.left(1) > 0 || s.left(2) > 0 {
			t.Fatalf("left: %v %v %v", s.left(0), s.left(1), s.left(2))
		}
		if _, err := s.Store.RenewEndless(t.Context(), time.Hour); err != nil {
			t.Fatal(err)
		}
		isHeld(t, other.proxy, false, false)
		lock(t, other.proxy, "job", "bob", time.Second)
	})
}

// TestRead_OpenUndecided: where no majority says whether the lease has an end, no answer is made up.
func TestRead_OpenUndecided(t *testing.T) {
	t.Parallel()
	inBubble(t, 3, testOptions{MaxTTL: 6 * time.Second}, func(t *testing.T, s *timeless) {
		lockOpen(t, s.proxy)
		s.nodes[0].HSet(nodekeys.Lock("lockproxy:", jobKey), "l", "of a renewal that gives an end")
		isHeld(t, s.proxy, true, true)
		s.nodes[1].SetError("LOADING")
		if r, err := s.Service.Read(t.Context(), jobKey); err == nil {
			t.Errorf("%+v", r)
		}
	})
}

// TestRenewEndless_OtherFence: a grant is the one whose fence a quorum has, whatever a node has beside it: another fence for the same
// grant, since its clock is ahead, or an older grant of the same owner, whose release it has missed.
func TestRenewEndless_OtherFence(t *testing.T) {
	t.Parallel()
	for _, own := range []bool{true, false} {
		for node := range 3 {
			for _, by := range []int64{-1, 1} {
				t.Run(fmt.Sprintf("own=%t node %d %+d", own, node, by), func(t *testing.T) {
					inBubble(t, 3, testOptions{MaxTTL: 6 * time.Second}, func(t *testing.T, s *timeless) {
						g := lockOpen(t, s.proxy)
						at, want := s.proxy, locks.EndlessRenewals{Open: 1, Renewed: 1}
						if !own {
							at, want = s.another(t).proxy, locks.EndlessRenewals{Open: 1, Adopted: 1}
						}
						time.Sleep(3500 * time.Millisecond)
						n, record := s.nodes[node], nodekeys.Lock("lockproxy:", jobKey)
						n.HSet(record, "f", strconv.FormatInt(g.Fence+by, 10))
						n.HSet(record, "g", "1")
						if got, err := at.Store.RenewEndless(t.Context(), time.Hour); err != nil || !reflect.DeepEqual(got, want) {
							t.Errorf("%+v, %v", got, err)
						}
						time.Sleep(5 * time.Second)
						if r := read(t, s.proxy); !r.Held || r.Fence != g.Fence {
							t.Errorf("after its first lease: %+v", r)
						}
					})
				})
			}
		}
	}
}

// TestOpen_MaxHoldNodesForget: max-hold counts from the grant, even if every node has lost the lock and got it back, and
// whichever proxy renews it.
func TestOpen_MaxHoldNodesForget(t *testing.T) {
	t.Parallel()
	for _, own := range []bool{true, false} {
		t.Run(fmt.Sprintf("own=%t", own), func(t *testing.T) {
			o := testOptions{MaxTTL: 6 * time.Second, MaxHold: time.Minute, RenewEndless: true, RestartGrace: "safe"}
			inBubble(t, 3, o, func(t *testing.T, s *timeless) {
				granted := s.another(t)
				by := granted.proxy
				if own {
					by = s.proxy
				}
				lockOpen(t, by)
				time.Sleep(5 * time.Second)
				granted.stop()
				for _, n := range s.nodes {
					time.Sleep(10 * time.Second)
					n.Del(nodekeys.Lock("lockproxy:", jobKey))
				}
				time.Sleep(13 * time.Second)
				isHeld(t, s.proxy, true, true)
				time.Sleep(13 * time.Second)
				isHeld(t, s.proxy, false, false)
			})
		})
	}
}
