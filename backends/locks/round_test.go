package locks

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestRound_Wait(t *testing.T) {
	p := timeouts{node: 10 * time.Millisecond, quorum: 100 * time.Millisecond}
	tests := []struct {
		name, votes string // y a vote, x failed, - not asked, . never comes
		want        time.Duration
	}{
		{"all are there", "yyyyy", 0},
		{"one node is late", "yyyy.", p.node},
		{"a quorum is heard of", "yyy..", p.node},
		{"no quorum is heard of", "yy...", p.quorum},
		{"nobody is heard of", ".....", p.quorum},
		{"no quorum can come", "yxxx.", p.node},
		{"the few that were asked", "---..", p.quorum},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRound(len(tt.votes), askRead, 0, all)
				for i, l := range tt.votes {
					switch l {
					case 'y':
						r.deliver(i, vote{kind: no})
					case 'x':
						r.deliver(i, vote{err: errors.New("timeout")})
					case '-':
						r.deliver(i, vote{err: errNotAsked})
					}
				}
				began := time.Now()
				if err := r.wait(context.Background(), p); err != nil || time.Since(began) != tt.want {
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
		want         timeouts
	}{
		{0, 100 * msec, timeouts{5 * msec, 25 * msec}},
		{0, time.Second, timeouts{5 * msec, 200 * msec}},
		{0, 4 * time.Second, timeouts{20 * msec, 200 * msec}},
		{0, time.Minute, timeouts{50 * msec, 200 * msec}},
		{70 * msec, time.Second, timeouts{70 * msec, 70 * msec}}, // an operator's word
	}
	for _, tt := range tests {
		o := Options{NodeTimeout: tt.timeout}
		if got := o.timeouts(tt.ttl); got != tt.want {
			t.Errorf("%v, lease %v: %v, want %v", tt.timeout, tt.ttl, got, tt.want)
		}
	}
}
