package voters

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks/vote"
)

func TestRound_Wait(t *testing.T) {
	p := Timeouts{Node: 10 * time.Millisecond, Quorum: 100 * time.Millisecond}
	tests := []struct {
		name, votes string // y a vote, x failed, - not asked, . never comes
		want        time.Duration
	}{
		{"all are there", "yyyyy", 0},
		{"one node is late", "yyyy.", p.Node},
		{"a quorum is heard of", "yyy..", p.Node},
		{"no quorum is heard of", "yy...", p.Quorum},
		{"nobody is heard of", ".....", p.Quorum},
		{"no quorum can come", "yxxx.", p.Node},
		{"the few that were asked", "---..", p.Quorum},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRound(len(tt.votes), AskRead, RoundLimit, func() time.Duration { return 0 }, WaitForAll)
				for i, l := range tt.votes {
					switch l {
					case 'y':
						r.deliver(i, vote.Vote{Kind: vote.No})
					case 'x':
						r.deliver(i, vote.Vote{Err: errors.New("timeout")})
					case '-':
						r.deliver(i, vote.Vote{Err: ErrNotAsked})
					}
				}
				began := time.Now()
				if err := r.Wait(context.Background(), p); err != nil || time.Since(began) != tt.want {
					t.Errorf("waited %v, %v, want %v", time.Since(began), err, tt.want)
				}
			})
		})
	}
}

func TestOptions_Timeouts(t *testing.T) {
	const msec = time.Millisecond
	tests := []struct {
		timeout, ttl time.Duration
		want         Timeouts
	}{
		{0, 100 * msec, Timeouts{5 * msec, 25 * msec}},
		{0, time.Second, Timeouts{5 * msec, 200 * msec}},
		{0, 4 * time.Second, Timeouts{20 * msec, 200 * msec}},
		{0, time.Minute, Timeouts{50 * msec, 200 * msec}},
		{70 * msec, time.Second, Timeouts{70 * msec, 70 * msec}}, // an operator's word
	}
	for _, tt := range tests {
		o := Options{NodeTimeout: tt.timeout}
		if got := o.Timeouts(tt.ttl); got != tt.want {
			t.Errorf("%v, lease %v: %v, want %v", tt.timeout, tt.ttl, got, tt.want)
		}
	}
}

// TestTimeouts_After: what has passed counts for both, and none of them is negative.
func TestTimeouts_After(t *testing.T) {
	p := Timeouts{50 * time.Millisecond, time.Second}
	for d, want := range map[time.Duration]Timeouts{
		0: p, 20 * time.Millisecond: {30 * time.Millisecond, 980 * time.Millisecond}, 400 * time.Millisecond: {0, 600 * time.Millisecond}, time.Hour: {},
	} {
		if got := p.After(d); got != want {
			t.Errorf("after %v: %v, want %v", d, got, want)
		}
	}
}

// TestLateVotes: those that come before it is known what to do with them are not lost.
func TestLateVotes(t *testing.T) {
	var l LateVotes
	var taken []int
	l.Add(2, vote.Vote{})
	l.TakeBy(func(i int, _ vote.Vote) { taken = append(taken, i) })
	l.Add(0, vote.Vote{})
	if !slices.Equal(taken, []int{2, 0}) {
		t.Errorf("taken: %v", taken)
	}
}
