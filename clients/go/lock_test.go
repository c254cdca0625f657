package lockproxy

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A loss is when and why a holder was told.
type loss struct {
	at  time.Duration
	err error
}

// hold takes the lock and returns it with the losses that its holder is told of.
func hold(t *testing.T, f *fake, opts Options) (*Lock, *[]loss) {
	t.Helper()
	var losses []loss
	opts.OnLost = func(err error) { losses = append(losses, loss{time.Since(f.began), err}) }
	l, err := New(f).Acquire(t.Context(), "job", opts)
	if err != nil {
		t.Fatal(err)
	}
	return l, &losses
}

// after answers LOCK and UNLOCK as holding does, and from a time on everything else by answer.
func after(begin time.Duration, answer func(context.Context, *fakeConn, []string) (any, error)) func(context.Context, *fakeConn, []string) (any, error) {
	began := time.Now()
	return func(ctx context.Context, c *fakeConn, args []string) (any, error) {
		if args[0] == "LOCK" || args[0] == "UNLOCK" || time.Since(began) < begin {
			return holding(ctx, c, args)
		}
		return answer(ctx, c, args)
	}
}

// deaf never answers, and heeds no context.
func deaf(context.Context, *fakeConn, []string) (any, error) {
	time.Sleep(time.Hour)
	return nil, errBroken
}

// TestLock_ErrByTheClock: what keeps the lock does not run before the holder looks, as when the process was stopped.
func TestLock_ErrByTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &request{client: newFake(holding), names: []string{"job"}, asked: time.Now()}
		l := newLock(r, map[string]int64{"job": 7}, time.Second)
		time.Sleep(time.Second - time.Nanosecond)
		if err := l.Err(); err != nil {
			t.Errorf("lost before its validity has ended: %v", err)
		}
		if time.Sleep(time.Nanosecond); !errors.Is(l.Err(), ErrLost) {
			t.Errorf("got %v after its validity has ended", l.Err())
		}
	})
}

// TestLock_Lost: when and why, for renewals every 10 s that are good for 29 s each.
func TestLock_Lost(t *testing.T) {
	tests := []struct {
		name   string
		opts   Options
		answer func() func(context.Context, *fakeConn, []string) (any, error)
		at     time.Duration
		reason string
	}{
		{"renewed for ever", Options{MaxHold: 24 * time.Hour}, func() func(context.Context, *fakeConn, []string) (any, error) { return holding }, 0, ""},
		{"not renewed", Options{NoRenew: true}, func() func(context.Context, *fakeConn, []string) (any, error) { return holding }, 29 * time.Second, errOver.Error()},
		{"MaxHold", Options{MaxHold: 25 * time.Second}, func() func(context.Context, *fakeConn, []string) (any, error) { return holding }, 49 * time.Second, errOver.Error()},
		{"MaxHold by default", Options{}, func() func(context.Context, *fakeConn, []string) (any, error) { return holding }, time.Hour - 10*time.Second + 29*time.Second, errOver.Error()},
		{"taken away", Options{}, func() func(context.Context, *fakeConn, []string) (any, error) {
			return after(15*time.Second, replies(lockLost))
		}, 20 * time.Second, lockLost.Error()},
		{"another has it", Options{}, func() func(context.Context, *fakeConn, []string) (any, error) {
			return after(15*time.Second, replies(ReplyError("NOTOWNER another owner holds the lock")))
		}, 20 * time.Second, "NOTOWNER"},
		{"faults that go by", Options{MaxHold: 24 * time.Hour}, func() func(context.Context, *fakeConn, []string) (any, error) {
			return after(15*time.Second, replies(errBroken, quorumFailed, draining, upstreamDown, noPermission, int64(29_000)))
		}, 0, ""},
		{"a fault that stays", Options{}, func() func(context.Context, *fakeConn, []string) (any, error) {
			return after(15*time.Second, replies(quorumFailed))
		}, 39 * time.Second, "NOQUORUM"},
		{"silence", Options{}, func() func(context.Context, *fakeConn, []string) (any, error) {
			return after(15*time.Second, deaf)
		}, 39 * time.Second, errSilence.Error()},
		{"no lockproxy", Options{}, func() func(context.Context, *fakeConn, []string) (any, error) {
			return after(15*time.Second, replies("OK"))
		}, 39 * time.Second, "no answer of a lockproxy to RENEW: OK"},
		{"a slow answer", Options{}, func() func(context.Context, *fakeConn, []string) (any, error) {
			slow := func(context.Context, *fakeConn, []string) (any, error) {
				time.Sleep(8 * time.Second)
				return int64(10_000), nil
			}
			return after(15*time.Second, func(ctx context.Context, c *fakeConn, args []string) (any, error) {
				return slow(ctx, c, args)
			})
		}, 30 * time.Second, errSilence.Error()},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(tt.answer())
				l, losses := hold(t, f, tt.opts)
				time.Sleep(3*time.Hour + time.Second)
				synctest.Wait()
				if lost := tt.reason != ""; len(*losses) != map[bool]int{true: 1}[lost] || lost != errors.Is(l.Err(), ErrLost) {
					t.Fatalf("told %v, Err is %v", *losses, l.Err())
				} else if lost && ((*losses)[0].at != tt.at || !strings.Contains(l.Err().Error(), tt.reason) || (*losses)[0].err != l.Err()) {
					t.Errorf("told %v, want %q after %v; Err is %v", *losses, tt.reason, tt.at, l.Err())
				}
				if err := l.Release(t.Context()); err != l.Err() {
					t.Errorf("Release: %v", err)
				}
				if last := f.last(); !strings.Contains(last, "UNLOCK job") {
					t.Errorf("the last is %s", last)
				}
			})
		})
	}
}

// TestLock_Until: it is counted from before the question, and a renewal moves it.
func TestLock_Until(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(func(ctx context.Context, c *fakeConn, args []string) (any, error) {
			time.Sleep(2 * time.Second)
			return holding(ctx, c, args)
		})
		l, _ := hold(t, f, Options{})
		want := func(d time.Duration) {
			t.Helper()
			synctest.Wait()
			if got := l.Until().Sub(f.began); got != d {
				t.Errorf("until %v, want %v", got, d)
			}
		}
		want(29 * time.Second)
		time.Sleep(9 * time.Second) // the renewal is asked for at 10 s, and answered at 12 s
		want(29 * time.Second)
		time.Sleep(time.Second)
		want(39 * time.Second)
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		f.want(t, "0.0 LOCK job 30000 OWNER A REQ A", "10.0 RENEW job 30000 A FENCE 7", "12.0 UNLOCK job A REQ A")
	})
}

// TestLock_Shared: all that a reader sends says so.
func TestLock_Shared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(holding)
		l, _ := hold(t, f, Options{Shared: true})
		time.Sleep(11 * time.Second)
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
		f.want(t, "0.0 LOCK job 30000 OWNER A REQ A SHARED", "10.0 RENEW job 30000 A FENCE 7 SHARED", "11.0 UNLOCK job A REQ A SHARED")
	})
}

// TestLock_Permits: a permit is renewed and given back as a reader's lock is.
func TestLock_Permits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(holding)
		l, _ := hold(t, f, Options{Permits: 3})
		time.Sleep(11 * time.Second)
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
		f.want(t, "0.0 LOCK job 30000 OWNER A REQ A PERMITS 3", "10.0 RENEW job 30000 A FENCE 7 SHARED", "11.0 UNLOCK job A REQ A SHARED")
	})
}

// TestLock_Session is held as long as its connection is there and answers.
func TestLock_Session(t *testing.T) {
	tests := []struct {
		name   string
		ttl    time.Duration
		answer func() func(context.Context, *fakeConn, []string) (any, error)
		at     time.Duration
		reason string
	}{
		{"answers", 30 * time.Second, func() func(context.Context, *fakeConn, []string) (any, error) { return holding }, 0, ""},
		{"any answer will do", 30 * time.Second, func() func(context.Context, *fakeConn, []string) (any, error) {
			return after(time.Second, replies(upstreamDown))
		}, 0, ""},
		{"silence", 30 * time.Second, func() func(context.Context, *fakeConn, []string) (any, error) { return after(10*time.Second, deaf) }, 21 * time.Second, errSilence.Error()},
		{"silence, short", 8 * time.Second, func() func(context.Context, *fakeConn, []string) (any, error) {
			return after(10500*time.Millisecond, deaf)
		}, 14 * time.Second, errSilence.Error()},
		{"a broken connection", 30 * time.Second, func() func(context.Context, *fakeConn, []string) (any, error) {
			return after(10*time.Second, replies(errBroken))
		}, 12 * time.Second, errBroken.Error()},
		{"closed", 30 * time.Second, func() func(context.Context, *fakeConn, []string) (any, error) {
			return func(ctx context.Context, c *fakeConn, args []string) (any, error) {
				if args[0] == "LOCK" {
					time.AfterFunc(10*time.Second, c.Close)
				}
				return holding(ctx, c, args)
			}
		}, 10 * time.Second, errClosed.Error()},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(tt.answer())
				l, losses := hold(t, f, Options{Session: true, TTL: tt.ttl})
				time.Sleep(2*time.Hour + time.Second)
				synctest.Wait()
				if tt.reason == "" && (len(*losses) > 0 || f.open() != 1) {
					t.Errorf("told %v, %d open connections", *losses, f.open())
				}
				if tt.reason != "" && (len(*losses) != 1 || (*losses)[0].at != tt.at || !strings.Contains((*losses)[0].err.Error(), tt.reason) || f.open() != 0) {
					t.Errorf("told %v, want %q after %v; %d open connections", *losses, tt.reason, tt.at, f.open())
				}
				if err := l.Release(t.Context()); err != l.Err() || f.open() != 0 {
					t.Errorf("Release: %v, %d open connections", err, f.open())
				}
			})
		})
	}
}

func TestLock_Release(t *testing.T) {
	tests := []struct {
		name    string
		replies []any
		err     error
		sent    []string
	}{
		{"free", []any{int64(1)}, nil, []string{"1.0 UNLOCK job A REQ A"}},
		{"after a fault", []any{errBroken, int64(1)}, nil, []string{"1.0 UNLOCK job A REQ A", "1.1 UNLOCK job A REQ A"}},
		{"lost", []any{lockLost}, ErrLost, []string{"1.0 UNLOCK job A REQ A"}},
		{"no permission", []any{noPermission}, noPermission, []string{"1.0 UNLOCK job A REQ A"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(holding)
				l, losses := hold(t, f, Options{})
				time.Sleep(time.Second)
				f.answer = replies(tt.replies...)
				first, second := l.Release(t.Context()), l.Release(t.Context())
				if !errors.Is(first, tt.err) || second != first {
					t.Errorf("got %v and %v, want %v", first, second, tt.err)
				}
				time.Sleep(time.Hour)
				synctest.Wait()
				f.want(t, slices.Concat([]string{"0.0 LOCK job 30000 OWNER A REQ A"}, tt.sent)...)
				if len(*losses) > 0 {
					t.Errorf("told %v", *losses)
				}
			})
		})
	}
}

// TestLock_ReleaseInAnOutage: UNLOCK is sent again after 0.1 s, then less and less often, at most a second later, and the last time
// when the lease is over.
func TestLock_ReleaseInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(holding)
		l, _ := hold(t, f, Options{NoRenew: true})
		faults, sent := []error{errBroken, quorumFailed, draining, upstreamDown}, []time.Duration{}
		f.answer = func(context.Context, *fakeConn, []string) (any, error) {
			sent = append(sent, time.Since(f.began))
			return nil, faults[len(sent)%len(faults)]
		}
		if err := l.Release(t.Context()); err == nil {
			t.Error("it is released")
		}
		least := pause
		for i := 1; i < len(sent)-1; i++ {
			if p := sent[i] - sent[i-1]; p < least || p > least+least/4 {
				t.Errorf("pause %d is %v, want %v or a quarter more", i, p, least)
			}
			least = min(2*least, 800*time.Millisecond)
		}
		if last := sent[len(sent)-1]; last != 29*time.Second {
			t.Errorf("the last is sent after %v", last)
		}
	})
}

// TestLock_RenewInAnOutage: RENEW is sent again less and less often, and more often again towards the end of the lease: an answer that
// comes a quarter of a second before the end saves it. Then it begins anew.
func TestLock_RenewInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(holding)
		l, _ := hold(t, f, Options{TTL: 6 * time.Second, MaxHold: time.Hour})
		sent := []time.Duration{}
		f.answer = func(_ context.Context, _ *fakeConn, args []string) (any, error) {
			if left := time.Until(l.Until()); args[0] != "RENEW" || left < 250*time.Millisecond {
				return int64(6000), nil
			}
			sent = append(sent, time.Since(f.began))
			return nil, quorumFailed
		}
		until := l.Until()
		for l.Until().Equal(until) && l.Err() == nil {
			time.Sleep(10 * time.Millisecond)
		}
		if l.Err() != nil {
			t.Fatalf("it is lost: %v; sent at %v", l.Err(), sent)
		}
		least := pause
		for i := 1; i < len(sent); i++ {
			p, half := sent[i]-sent[i-1], (until.Sub(f.began)-sent[i-1])/2
			if p < min(least, half) || p > min(least+least/4, half) {
				t.Errorf("pause %d is %v, want %v or a quarter more, or half of what is left, %v", i, p, least, half)
			}
			least = min(2*least, maxPause)
		}
		f.answer = holding
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestLock_ReleaseTriesUntilTheLeaseIsOver, in the background when the context has ended.
func TestLock_ReleaseTriesUntilTheLeaseIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(holding)
		l, _ := hold(t, f, Options{NoRenew: true})
		f.answer = replies(errBroken)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := l.Release(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if err := l.Release(t.Context()); !errors.Is(err, errBroken) || time.Since(f.began) != 29*time.Second {
			t.Errorf("got %v after %v", err, time.Since(f.began))
		}
	})
}

// TestLock_ReleaseInOnLost does not wait for itself.
func TestLock_ReleaseInOnLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(after(0, replies(lockLost)))
		held, done := make(chan *Lock, 1), make(chan error, 1)
		l, err := New(f).Acquire(t.Context(), "job", Options{OnLost: func(error) { done <- (<-held).Release(context.Background()) }})
		if err != nil {
			t.Fatal(err)
		}
		held <- l
		if err := <-done; !errors.Is(err, ErrLost) {
			t.Error(err)
		}
		<-l.Lost()
	})
}

// TestLock_NotLostWhileItIsGivenBack: what ends then is no loss.
func TestLock_NotLostWhileItIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(holding)
		l, losses := hold(t, f, Options{})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_ = l.Release(ctx)
		l.lose(errOver)
		if err := l.Release(t.Context()); err != nil || l.Err() != nil || len(*losses) > 0 {
			t.Errorf("Release: %v; Err is %v; told %v", err, l.Err(), *losses)
		}
	})
}
