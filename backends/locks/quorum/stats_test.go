package quorum

import (
	"strconv"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
)

func TestStats(t *testing.T) {
	s, nodes := start(t, 3)
	lock(t, s, "job", "me", time.Minute)
	lock(t, s, "job", "me", time.Minute)
	refused(t, s, "job", "you", time.Minute)
	if _, err := s.Renew(t.Context(), locks.RenewRequest{Key: locks.Key{Name: "job"}, Owner: "me", TTL: time.Minute}); err != nil {
		t.Fatal(err)
	}
	unlock(t, s, "job", "me", 1)
	unlock(t, s, "job", "me", 0)
	s.Undo(lock(t, s, "other", "me", time.Minute))
	eventually(t, 20*time.Second, "the nodes vote", func() bool { return s.Stats().Voting == 3 })
	got := s.Stats()
	if got.Rounds < 7 {
		t.Errorf("%d rounds for seven commands", got.Rounds)
	}
	if got.Nodes != 3 || got.Grants != 3 || got.Refusals != 1 || got.Renewals != 1 || got.Releases != 2 || got.Undos != 1 || got.NoQuorum != 0 {
		t.Errorf("got %+v", got)
	}
	failures := func() int64 { return counter(s, "requests_total", "outcome", "failed") }
	if reentries, failures := counter(s, "reentries_total"), failures(); reentries != 1 || failures != 0 {
		t.Errorf("%d re-entries, %d failures", reentries, failures)
	}
	if granted, refused, held := durations(s, "wait_seconds", "outcome", "granted").Count(), durations(s, "wait_seconds", "outcome", "refused").Count(), durations(s, "hold_seconds").Count(); granted != 3 || refused != 1 || held != 2 {
		t.Errorf("times of %d grants, %d refusals, %d holds", granted, refused, held)
	}
	if n := counter(s, "grants_total", "ground", "at_once"); n != 3 {
		t.Errorf("%d granted at once", n)
	}
	eventually(t, 20*time.Second, "every round has one end", func() bool { return addUp(s) })
	one, other := s.NewSession(nil), s.NewSession(nil)
	defer one.Abandon()
	for name, session := range map[string]*locks.Session{"a": one, "b": one, "c": other} {
		if a, err := s.Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: name}, TTL: time.Minute, Session: session}); err != nil || !a.Granted {
			t.Fatal(a, err)
		}
	}
	if got := s.Stats(); got.Sessions != 2 || got.SessionLocks != 3 {
		t.Errorf("two sessions with three locks: %+v", got)
	}
	other.Abandon()
	if got := s.Stats(); got.Sessions != 1 || got.SessionLocks != 2 {
		t.Errorf("one session with two locks: %+v", got)
	}
	for _, n := range nodes {
		n.Kill()
	}
	for range 3 {
		if _, err := s.Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: "job"}, TTL: time.Second}); err == nil {
			t.Error("LOCK without nodes succeeds")
		}
	}
	got = s.Stats()
	if noQuorum := counter(s, "rounds_total", "question", "acquire", "outcome", "noquorum"); got.NoQuorum != 3 || failures() != 3 || got.Grants != 6 || noQuorum < 3 {
		t.Errorf("without nodes: %d failures, %d acquisitions, %+v", failures(), noQuorum, got)
	}
	for i, n := range s.Nodes() {
		node := n.Address
		silent := counter(s, "node_votes_total", "node", node, "vote", "connection") + counter(s, "node_votes_total", "node", node, "vote", "timeout")
		if got.Each[i].Yes == 0 || got.Each[i].None == 0 || silent == 0 || durations(s, "node_reply_seconds", "node", node).Count() == 0 {
			t.Errorf("node: %+v", got.Each[i])
		}
	}
	eventually(t, 20*time.Second, "every round has one end", func() bool { return addUp(s) })
}

// addUp reports whether the parts of what is counted make up the whole.
func addUp(s *proxy) bool {
	granted := int64(0)
	rounds, _ := sums(s, "rounds_total")
	_, asked := sums(s, "round_seconds")
	for _, ground := range []string{"at_once", "handed", "woken", "timer", "own"} {
		granted += counter(s, "grants_total", "ground", ground)
	}
	st := s.Stats()
	return rounds == st.Rounds && asked == rounds && granted == st.Grants &&
		durations(s, "wait_seconds", "outcome", "granted").Count() == granted &&
		durations(s, "wait_seconds", "outcome", "refused").Count() == st.Refusals
}

// oneWaits returns when somebody waits whose first LOCK was refused. Before that, an UNLOCK may overtake the first LOCK, which is granted then.
func oneWaits(t *testing.T, s *proxy) {
	t.Helper()
	eventually(t, time.Minute, "one waits", func() bool {
		return s.Stats().Waiting == 1 && counter(s, "rounds_total", "question", "acquire", "outcome", "held") > 0
	})
}

func TestCounters_TriggersLossesAndRepeats(t *testing.T) {
	s, _ := start(t, 3)
	first := lock(t, s, "job", "first", time.Minute)
	came := make(chan locks.Decision, 1)
	go func() {
		a, _ := s.Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: "job"}, Owner: "second", TTL: time.Minute, Wait: time.Minute})
		came <- a
	}()
	oneWaits(t, s)
	unlock(t, s, "job", first.Owner, 0)
	if a := <-came; !a.Granted {
		t.Fatalf("refused: %+v", a)
	}
	by := func(ground string) int64 { return counter(s, "grants_total", "ground", ground) }
	if atOnce, handed, woken := by("at_once"), by("handed"), by("woken"); atOnce != 1 || handed+woken != 1 {
		t.Errorf("granted: %d at once, %d handed, %d woken; want the first at once, the second when the first released", atOnce, handed, woken)
	}
	lost := make(chan locks.Loss, 1)
	c := s.NewSession(func(l locks.Loss) { lost <- l })
	defer c.End()
	if a, err := s.Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: "kept"}, Owner: "me", TTL: time.Minute, Session: c}); err != nil || !a.Granted {
		t.Fatal(a, err)
	}
	if _, held, err := s.Force(t.Context(), locks.Key{DB: 0, Name: "kept"}); err != nil || !held {
		t.Fatal(held, err)
	}
	<-lost
	got := s.Stats()
	if held := durations(s, "hold_seconds").Count(); got.Forces != 1 || got.Losses != 1 || counter(s, "lost_total", "reason", "forced") != 1 || held != 2 {
		t.Errorf("one was forced, two are over: %d are, %+v", held, got)
	}
	if _, err := s.Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: "again"}, Owner: "me", TTL: time.Minute, Req: "1"}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: "again"}, Owner: "me", TTL: time.Minute, Req: "1"}); err != nil {
		t.Fatal(err)
	}
	if got := s.Stats(); got.Repeats != 1 {
		t.Errorf("%d repeats, want 1", got.Repeats)
	}
}

func TestCounters_MeasureHoldsAndWaits(t *testing.T) {
	s, _ := start(t, 3)
	began := time.Now()
	first := lock(t, s, "job", "first", time.Minute)
	came := make(chan locks.Decision, 1)
	go func() {
		a, _ := s.Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: "job"}, Owner: "second", TTL: time.Minute, Wait: time.Minute})
		came <- a
	}()
	oneWaits(t, s)
	const least = 200 * time.Millisecond
	time.Sleep(least)
	unlock(t, s, "job", first.Owner, 0)
	if a := <-came; !a.Granted {
		t.Fatalf("refused: %+v", a)
	}
	all := time.Since(began)
	if sum := durations(s, "hold_seconds").Sum; sum < least.Seconds() || sum > all.Seconds() {
		t.Errorf("held for %vs, want %v to %v", sum, least, all)
	}
	if sum := durations(s, "wait_seconds", "outcome", "granted").Sum; sum < least.Seconds() || sum > 2*all.Seconds() { // of two LOCKs
		t.Errorf("waited for %vs, want %v to %v", sum, least, 2*all)
	}
}

// TestLock_OneRoundEach: a lock that nobody has costs each node one script, and giving it back another.
func TestLock_OneRoundEach(t *testing.T) {
	s, nodes := start(t, 5)
	unlock(t, s, "job", lock(t, s, "job", "", time.Minute).Owner, 0) // the scripts are there, and all votes
	eventually(t, 20*time.Second, "the nodes vote", func() bool { return s.Stats().Voting == 5 })
	const cycles = 20
	var before []int
	for _, n := range nodes {
		before = append(before, n.Calls(t, "evalsha"))
	}
	for i := range cycles {
		name := "job"
		if i%2 == 0 {
			name = strconv.Itoa(i)
		}
		unlock(t, s, name, lock(t, s, name, "", time.Minute).Owner, 0)
	}
	for i, n := range nodes {
		if calls := n.Calls(t, "evalsha") - before[i]; calls >= 3*cycles { // a few more ask how the node is, or tell one that was late
			t.Errorf("%d scripts at a node for %d times LOCK and UNLOCK", calls, cycles)
		}
	}
}
