package locks

import (
	"strconv"
	"testing"
	"time"
)

func TestStats(t *testing.T) {
	s, nodes := start(t, 3)
	lock(t, s, "job", "me", time.Minute)
	lock(t, s, "job", "me", time.Minute)
	refused(t, s, "job", "you", time.Minute)
	if _, err := s.Renew(t.Context(), RenewRequest{Key: Key{Name: "job"}, Owner: "me", TTL: time.Minute}); err != nil {
		t.Fatal(err)
	}
	unlock(t, s, "job", "me", 1)
	unlock(t, s, "job", "me", 0)
	s.Undo(lock(t, s, "other", "me", time.Minute))
	eventually(t, 5*time.Second, "the nodes vote", func() bool { return s.Stats().Voting == 3 })
	got := s.Stats()
	if got.Rounds < 7 {
		t.Errorf("%d rounds for seven commands", got.Rounds)
	}
	if got.Nodes != 3 || got.Grants != 3 || got.Refusals != 1 || got.Renewals != 1 || got.Releases != 2 || got.Undos != 1 ||
		got.Reentries != 1 || got.NoQuorum != 0 || got.Failures != 0 {
		t.Errorf("got %+v", got)
	}
	if got.GrantWait.Count() != 3 || got.RefusalWait.Count() != 1 || got.Held.Count() != 2 || got.Triggers[TriggerAtOnce] != 3 {
		t.Errorf("waits and holds: %+v", got)
	}
	eventually(t, 5*time.Second, "every round has one end", func() bool { return sums(s.Stats()) })
	one, other := s.NewSession(nil), s.NewSession(nil)
	defer one.Abandon()
	for name, session := range map[string]*Session{"a": one, "b": one, "c": other} {
		if a, err := s.Lock(t.Context(), LockRequest{Key: Key{Name: name}, TTL: time.Minute, Session: session}); err != nil || !a.Granted {
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
		if _, err := s.Lock(t.Context(), LockRequest{Key: Key{Name: "job"}, TTL: time.Second}); err == nil {
			t.Error("LOCK without nodes succeeds")
		}
	}
	got = s.Stats()
	if got.NoQuorum != 3 || got.Failures != 3 || got.Grants != 6 || got.Asked["acquire"].Ends["noquorum"] < 3 {
		t.Errorf("without nodes: %+v", got)
	}
	for _, n := range got.Each {
		if n.Votes["yes"] == 0 || n.Votes["connection"]+n.Votes["timeout"] == 0 || n.Replies.Count() == 0 {
			t.Errorf("node: %+v", n)
		}
	}
	eventually(t, 5*time.Second, "every round has one end", func() bool { return sums(s.Stats()) })
}

// sums reports whether the parts of what is counted make up the whole.
func sums(st Stats) bool {
	rounds, asked := int64(0), int64(0)
	for _, a := range st.Asked {
		for _, n := range a.Ends {
			rounds += n
		}
		asked += a.Took.Count()
	}
	grounds := int64(0)
	for _, n := range st.Triggers {
		grounds += n
	}
	return rounds == st.Rounds && asked == rounds && grounds == st.Grants &&
		st.GrantWait.Count() == st.Grants && st.RefusalWait.Count() == st.Refusals
}

// Why a waiter asked, and what became of sessions' locks.
func TestStatsOfWaitersAndSessions(t *testing.T) {
	s, _ := start(t, 3)
	first := lock(t, s, "job", "first", time.Minute)
	came := make(chan Decision, 1)
	go func() {
		a, _ := s.Lock(t.Context(), LockRequest{Key: Key{Name: "job"}, Owner: "second", TTL: time.Minute, Wait: time.Minute})
		came <- a
	}()
	eventually(t, 5*time.Second, "one waits", func() bool { return s.Stats().Waiting == 1 })
	unlock(t, s, "job", first.Owner, 0)
	if a := <-came; !a.Granted {
		t.Fatalf("refused: %+v", a)
	}
	got := s.Stats()
	if got.Triggers[TriggerAtOnce] != 1 || got.Triggers[TriggerAtOnce]+got.Triggers[TriggerHanded]+got.Triggers[TriggerWoken] != 2 {
		t.Errorf("the first was granted at once, the second when the first released: %v", got.Triggers)
	}
	lost := make(chan Loss, 1)
	c := s.NewSession(func(l Loss) { lost <- l })
	defer c.End()
	if a, err := s.Lock(t.Context(), LockRequest{Key: Key{Name: "kept"}, Owner: "me", TTL: time.Minute, Session: c}); err != nil || !a.Granted {
		t.Fatal(a, err)
	}
	if _, held, err := s.Force(t.Context(), Key{0, "kept"}); err != nil || !held {
		t.Fatal(held, err)
	}
	<-lost
	got = s.Stats()
	if got.Forces != 1 || got.Lost[LostForced] != 1 || got.Held.Count() != 2 {
		t.Errorf("one was forced, two are over: %+v", got)
	}
	if _, err := s.Lock(t.Context(), LockRequest{Key: Key{Name: "again"}, Owner: "me", TTL: time.Minute, Req: "1"}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Lock(t.Context(), LockRequest{Key: Key{Name: "again"}, Owner: "me", TTL: time.Minute, Req: "1"}); err != nil {
		t.Fatal(err)
	}
	if got := s.Stats(); got.Repeats != 1 {
		t.Errorf("%d repeats, want 1", got.Repeats)
	}
}

// TestStatsMeasure: a hold and a wait are counted as long as they were.
func TestStatsMeasure(t *testing.T) {
	s, _ := start(t, 3)
	began := time.Now()
	first := lock(t, s, "job", "first", time.Minute)
	came := make(chan Decision, 1)
	go func() {
		a, _ := s.Lock(t.Context(), LockRequest{Key: Key{Name: "job"}, Owner: "second", TTL: time.Minute, Wait: time.Minute})
		came <- a
	}()
	eventually(t, 5*time.Second, "one waits", func() bool { return s.Stats().Waiting == 1 })
	const least = 200 * time.Millisecond
	time.Sleep(least)
	unlock(t, s, "job", first.Owner, 0)
	if a := <-came; !a.Granted {
		t.Fatalf("refused: %+v", a)
	}
	got, all := s.Stats(), time.Since(began)
	if sum := got.Held.Sum; sum < least.Seconds() || sum > all.Seconds() {
		t.Errorf("held for %vs, want %v to %v", sum, least, all)
	}
	if sum := got.GrantWait.Sum; sum < least.Seconds() || sum > 2*all.Seconds() { // of two LOCKs
		t.Errorf("waited for %vs, want %v to %v", sum, least, 2*all)
	}
}

// recount is what count says, found by looking at everything.
func recount(k *keeper) (sessions, holds int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	seen := map[*Session]bool{}
	for _, l := range k.leases {
		for _, hold := range l.holds {
			if hold.session != nil {
				seen[hold.session] = true
				holds++
			}
		}
	}
	return len(seen), holds
}

// However holds come and go, they are counted without looking at all of them.
func TestSessionCounts(t *testing.T) {
	s, _ := start(t, 1)
	a, b, c := newClient(s), newClient(s), newClient(s)
	steps := []struct {
		name            string
		do              func()
		sessions, holds int
	}{
		{"taken", func() { a.lock(t, "one", "o", time.Minute, 0) }, 1, 1},
		{"re-entered", func() { a.lock(t, "one", "o", time.Minute, 0) }, 1, 2},
		{"by another session of the owner", func() { b.lock(t, "one", "o", time.Minute, 0) }, 2, 3},
		{"others", func() { b.lock(t, "two", "p", time.Minute, 0); c.lock(t, "three", "q", time.Minute, 0) }, 3, 5},
		{"given back once", func() { unlock(t, s, "one", "o", 2) }, -1, 4},
		{"forced", func() { s.Force(t.Context(), Key{0, "three"}) }, -1, 3},
		{"a session ends", func() { b.End() }, -1, -1},
		{"another is abandoned", func() { a.Abandon() }, 0, 0},
	}
	for _, step := range steps {
		step.do()
		eventually(t, 10*time.Second, step.name, func() bool {
			sessions, holds := s.keeper.count()
			wantSessions, wantHolds := recount(s.keeper)
			return sessions == wantSessions && holds == wantHolds &&
				(step.sessions < 0 || sessions == step.sessions) && (step.holds < 0 || holds == step.holds)
		})
	}
}

// TestQuarantinesAreCountedOnce: also if the node cannot be reached for a while.
func TestQuarantinesAreCountedOnce(t *testing.T) {
	s, err := New(Options{Nodes: nodesAt(t, "127.0.0.1:1")})
	if err != nil {
		t.Fatal(err)
	}
	in := func(left int64) vote { return vote{code: quarantined, wait: left} }
	down := vote{err: errTimeout}
	for _, tt := range []struct {
		seen []vote
		want int64
	}{
		{[]vote{in(9000), in(8000), down, in(7000), down, down, in(0), in(0)}, 1},
		{[]vote{{ballot: yes}, in(9000)}, 2},
		{[]vote{in(8000), down, in(9000)}, 3},
		{[]vote{in(10000)}, 4},
		{[]vote{{code: unregistered}, in(9000), down}, 5},
	} {
		for _, v := range tt.seen {
			s.note([]vote{v})
		}
		if got := s.Stats().Each[0].Quarantines; got != tt.want {
			t.Errorf("after %+v: %d, want %d", tt.seen, got, tt.want)
		}
	}
}

// TestOneRoundEach: a lock that nobody has costs each node one script, and giving it back another.
func TestOneRoundEach(t *testing.T) {
	s, nodes := start(t, 5)
	unlock(t, s, "job", lock(t, s, "job", "", time.Minute).Owner, 0) // the scripts are there, and all votes
	eventually(t, 5*time.Second, "the nodes vote", func() bool { return s.Stats().Voting == 5 })
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
