package lockproxy

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const (
	quorumFailed = ReplyError("NOQUORUM 1 of 3 lock nodes answered")
	draining     = ReplyError("DRAINING this proxy is shutting down")
	upstreamDown = ReplyError("UPSTREAMDOWN connection refused")
	noPermission = ReplyError("NOPERM no permissions")
	lockLost     = ReplyError("LOCKLOST this owner has no lock")
)

// TestAcquire_InAnOutage: LOCK is sent again after 0.1 s, then less and less often, and the last time when the wait is over.
func TestAcquire_InAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, sent := newFake(nil), []time.Duration{}
		f.answer = func(_ context.Context, _ *fakeConn, args []string) (any, error) {
			if args[0] == "LOCK" {
				sent = append(sent, time.Since(f.began))
				return nil, quorumFailed
			}
			return int64(1), nil
		}
		if _, err := New(f).Acquire(t.Context(), "job", Options{Wait: 10 * time.Second}); !errors.Is(err, quorumFailed) {
			t.Error(err)
		}
		least := pause
		for i := 1; i < len(sent)-1; i++ {
			if p := sent[i] - sent[i-1]; p < least || p > least+least/4 {
				t.Errorf("pause %d is %v, want %v or a quarter more", i, p, least)
			}
			least = min(2*least, maxPause)
		}
		if last := sent[len(sent)-1]; last != 10*time.Second {
			t.Errorf("the last is sent after %v", last)
		}
		synctest.Wait()
	})
}

// TestAcquire_Asks: which LOCKs are sent, when and where, and what Acquire returns.
func TestAcquire_Asks(t *testing.T) {
	withoutChance(t)
	tests := []struct {
		name    string
		opts    Options
		conns   int // of its own that were made
		replies []any
		err     error // what Acquire returns is one
		sent    string
	}{
		{"granted", Options{NoRenew: true}, 0, []any{grant(7, 29*time.Second)}, nil,
			"0.0 LOCK job 30000 OWNER A REQ A"},
		{"refused", Options{TTL: time.Second}, 0, []any{nil}, ErrNotAcquired,
			"0.0 LOCK job 1000 OWNER A REQ A"},
		{"with an info", Options{Info: "why", NoRenew: true}, 0, []any{grant(7, time.Second)}, nil,
			"0.0 LOCK job 30000 OWNER A REQ A INFO why"},
		{"a session", Options{Session: true, MaxHold: time.Minute}, 1, []any{grant(7, 29*time.Second)}, nil,
			"own 0.0 LOCK job 30000 OWNER A REQ A SESSION ONLOSS CLOSE MAXHOLD 60000"},
		{"a reader", Options{Shared: true, Info: "why", NoRenew: true}, 0, []any{grant(7, time.Second)}, nil,
			"0.0 LOCK job 30000 OWNER A REQ A SHARED INFO why"},
		{"a reader, not answered", Options{Shared: true}, 0, []any{errBroken, int64(1)}, errBroken,
			"0.0 LOCK job 30000 OWNER A REQ A SHARED\n0.0 UNLOCK job A REQ A SHARED"},
		{"a reader, over before it came", Options{Shared: true, Wait: time.Second, NoRenew: true}, 1, []any{grant(7, 0), int64(1), grant(8, time.Second)}, nil,
			"0.0 LOCK job 30000 OWNER A REQ A SHARED\n" +
				"0.0 UNLOCK job A REQ A SHARED\n" +
				"own 0.1 LOCK job 30000 OWNER B REQ B SHARED WAIT 900"},
		{"a permit, over before it came", Options{Permits: 3, Wait: time.Second, NoRenew: true}, 1, []any{grant(7, 0), int64(1), grant(8, time.Second)}, nil,
			"0.0 LOCK job 30000 OWNER A REQ A PERMITS 3\n" +
				"0.0 UNLOCK job A REQ A SHARED\n" +
				"own 0.1 LOCK job 30000 OWNER B REQ B PERMITS 3 WAIT 900"},
		{"a session, refused", Options{Session: true}, 1, []any{nil}, ErrNotAcquired,
			"own 0.0 LOCK job 30000 OWNER A REQ A SESSION ONLOSS CLOSE"},
		{"no permission", Options{Wait: time.Minute}, 0, []any{noPermission}, noPermission,
			"0.0 LOCK job 30000 OWNER A REQ A"},
		{"no lockproxy", Options{Wait: time.Minute}, 0, []any{"OK"}, ReplyError("ERR no answer of a lockproxy to LOCK: OK"),
			"0.0 LOCK job 30000 OWNER A REQ A"},
		{"a closed client", Options{Wait: time.Minute}, 0, []any{ErrClosed}, ErrClosed,
			"0.0 LOCK job 30000 OWNER A REQ A"},
		{"no quorum", Options{}, 0, []any{quorumFailed, int64(1)}, quorumFailed,
			"0.0 LOCK job 30000 OWNER A REQ A\n0.0 UNLOCK job A REQ A"},
		{"not answered", Options{}, 0, []any{errBroken, int64(1)}, errBroken,
			"0.0 LOCK job 30000 OWNER A REQ A\n0.0 UNLOCK job A REQ A"},
		{"granted after a fault", Options{Wait: 2 * time.Second, NoRenew: true}, 2, []any{errBroken, quorumFailed, draining, upstreamDown, grant(7, time.Minute)}, nil,
			"0.0 LOCK job 30000 OWNER A REQ A\n" +
				"own 0.1 LOCK job 30000 OWNER A REQ A WAIT 1900\n" +
				"own 0.3 LOCK job 30000 OWNER A REQ A WAIT 1700\n" +
				"own 0.7 LOCK job 30000 OWNER A REQ A WAIT 1300\n" +
				"own 1.5 LOCK job 30000 OWNER A REQ A WAIT 500"},
		{"not granted after a fault", Options{Wait: 160 * time.Millisecond}, 1, []any{errBroken, quorumFailed, quorumFailed, draining, int64(1)}, quorumFailed,
			"0.0 LOCK job 30000 OWNER A REQ A\n" +
				"own 0.1 LOCK job 30000 OWNER A REQ A WAIT 60\n" +
				"own 0.2 LOCK job 30000 OWNER A REQ A\n" +
				"0.2 UNLOCK job A REQ A\n" +
				"0.3 UNLOCK job A REQ A"},
		{"over before it came", Options{Wait: time.Second, NoRenew: true}, 1, []any{grant(7, 0), int64(1), grant(8, time.Second)}, nil,
			"0.0 LOCK job 30000 OWNER A REQ A\n" +
				"0.0 UNLOCK job A REQ A\n" +
				"own 0.1 LOCK job 30000 OWNER B REQ B WAIT 900"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(replies(tt.replies...))
				l, err := New(f).Acquire(t.Context(), "job", tt.opts)
				time.Sleep(time.Second) // for what goes on in the background
				f.want(t, tt.sent)
				if !errors.Is(err, tt.err) || (l != nil) != (tt.err == nil) {
					t.Errorf("got %v, %v, want %v", l, err, tt.err)
				}
				if len(f.conns) != tt.conns {
					t.Errorf("%d connections were made, want %d", len(f.conns), tt.conns)
				}
				if l != nil {
					_ = l.Release(t.Context())
				}
			})
		})
	}
}

// TestAcquireAll_Asks: with several names the commands are those of several, and the fences are by name.
func TestAcquireAll_Asks(t *testing.T) {
	withoutChance(t)
	ab := []string{"b", "a"}
	tests := []struct {
		name    string
		names   []string
		opts    Options
		replies []any
		err     error
		sent    string
	}{
		{"granted", ab, Options{Info: "why", NoRenew: true}, []any{grants(29*time.Second, "b", 7, "a", 8)}, nil,
			"0.0 LOCKALL 2 b a 30000 OWNER A REQ A INFO why"},
		{"refused", ab, Options{TTL: time.Second}, []any{nil}, ErrNotAcquired,
			"0.0 LOCKALL 2 b a 1000 OWNER A REQ A"},
		{"a session of a reader", ab, Options{Session: true, Shared: true}, []any{grants(29*time.Second, "b", 7, "a", 8)}, nil,
			"own 0.0 LOCKALL 2 b a 30000 OWNER A REQ A SHARED SESSION ONLOSS CLOSE"},
		{"granted after a fault", ab, Options{Wait: time.Second, NoRenew: true}, []any{errBroken, quorumFailed, grants(time.Minute, "b", 7, "a", 8)}, nil,
			"0.0 LOCKALL 2 b a 30000 OWNER A REQ A\n" +
				"own 0.1 LOCKALL 2 b a 30000 OWNER A REQ A WAIT 900\n" +
				"own 0.3 LOCKALL 2 b a 30000 OWNER A REQ A WAIT 700"},
		{"not answered, a reader", ab, Options{Shared: true}, []any{errBroken, int64(1)}, errBroken,
			"0.0 LOCKALL 2 b a 30000 OWNER A REQ A SHARED\n0.0 UNLOCKALL 2 b a A REQ A SHARED"},
		{"over before it came", ab, Options{Wait: time.Second, NoRenew: true}, []any{grants(0, "b", 7, "a", 8), int64(1), grants(time.Second, "b", 9, "a", 10)}, nil,
			"0.0 LOCKALL 2 b a 30000 OWNER A REQ A\n" +
				"0.0 UNLOCKALL 2 b a A REQ A\n" +
				"own 0.1 LOCKALL 2 b a 30000 OWNER B REQ B WAIT 900"},
		{"one was taken away before the answer came", ab, Options{Wait: time.Second}, []any{lockLost, int64(1)}, lockLost,
			"0.0 LOCKALL 2 b a 30000 OWNER A REQ A\n0.0 UNLOCKALL 2 b a A REQ A"},
		{"one name", []string{"job"}, Options{NoRenew: true}, []any{grant(7, 29*time.Second)}, nil,
			"0.0 LOCK job 30000 OWNER A REQ A"},
		{"no name", nil, Options{}, []any{ReplyError("ERR '0' is not a number of names")}, ReplyError("ERR '0' is not a number of names"),
			"0.0 LOCKALL 0 30000 OWNER A REQ A"},
		{"no lockproxy", ab, Options{}, []any{"OK"}, ReplyError("ERR no answer of a lockproxy to LOCK: OK"),
			"0.0 LOCKALL 2 b a 30000 OWNER A REQ A"},
		{"too few fences", ab, Options{}, []any{grants(time.Second, "b", 7)}, ReplyError("ERR no answer of a lockproxy to LOCK: [1000 owner [b 7 1]]"),
			"0.0 LOCKALL 2 b a 30000 OWNER A REQ A"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(replies(tt.replies...))
				l, err := New(f).AcquireAll(t.Context(), tt.names, tt.opts)
				time.Sleep(time.Second) // for what goes on in the background
				f.want(t, tt.sent)
				if !errors.Is(err, tt.err) || (l != nil) != (tt.err == nil) {
					t.Fatalf("got %v, %v, want %v", l, err, tt.err)
				}
				if l == nil {
					return
				}
				if len(tt.names) == 1 && (l.Name != "job" || l.Fence != 7 || l.Fences["job"] != 7) {
					t.Errorf("got %q with %d and %v", l.Name, l.Fence, l.Fences)
				}
				if len(tt.names) == 2 && (l.Name != "" || l.Fence != 0 || len(l.Fences) != 2 || l.Fences["a"] != l.Fences["b"]+1 || l.Fences["b"] < 7) {
					t.Errorf("got %q with %d and %v", l.Name, l.Fence, l.Fences)
				}
				_ = l.Release(t.Context())
			})
		})
	}
}

// TestDoAll: all names are renewed at once, and given back at once.
func TestDoAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(holding)
		f.answer = func(ctx context.Context, c *fakeConn, args []string) (any, error) {
			if args[0] == "LOCKALL" {
				return grants(29*time.Second, "a", 7, "b", 8), nil
			}
			return holding(ctx, c, args)
		}
		names := []string{"a", "b"}
		err := New(f).DoAll(t.Context(), names, Options{}, func(_ context.Context, l *Lock) error {
			names[0] = "of the caller"
			time.Sleep(11 * time.Second)
			return l.Err()
		})
		if err != nil {
			t.Error(err)
		}
		f.want(t, "0.0 LOCKALL 2 a b 30000 OWNER A REQ A", "10.0 RENEWALL 2 a b 30000 A", "11.0 UNLOCKALL 2 a b A REQ A")
	})
}

// TestDoAll_Lost: whoever loses one of the names has lost the lock, and gives the others back.
func TestDoAll_Lost(t *testing.T) {
	lost := ReplyError("LOCKLOST b: an operator took it. The other name was renewed")
	synctest.Test(t, func(t *testing.T) {
		f := newFake(replies(grants(29*time.Second, "a", 7, "b", 8), lost, ReplyError("LOCKLOST b: it is gone. The other name was given back")))
		err := New(f).DoAll(t.Context(), []string{"a", "b"}, Options{Shared: true}, func(ctx context.Context, _ *Lock) error {
			<-ctx.Done()
			return context.Cause(ctx)
		})
		if !errors.Is(err, ErrLost) || !errors.Is(err, lost) {
			t.Error(err)
		}
		f.want(t, "0.0 LOCKALL 2 a b 30000 OWNER A REQ A SHARED", "10.0 RENEWALL 2 a b 30000 A SHARED", "10.0 UNLOCKALL 2 a b A REQ A SHARED")
	})
}

// waiting answers LOCK with null when its WAIT is over, and everything else with 1.
func waiting(_ context.Context, _ *fakeConn, args []string) (any, error) {
	if args[0] != "LOCK" {
		return int64(1), nil
	}
	for i, a := range args {
		if a == "WAIT" {
			ms, err := time.ParseDuration(args[i+1] + "ms")
			time.Sleep(ms)
			return nil, err
		}
	}
	return nil, nil
}

// TestAcquire_WaitsInPieces of half the client's timeout, 5 s at most, with the same owner and request.
func TestAcquire_WaitsInPieces(t *testing.T) {
	tests := []struct {
		name    string
		timeout time.Duration
		sent    []string
	}{
		{"not known", 0, []string{"own 0.0 A WAIT 5000", "own 5.0 A WAIT 5000", "own 10.0 A WAIT 2000"}},
		{"a minute", time.Minute, []string{"own 0.0 A WAIT 5000", "own 5.0 A WAIT 5000", "own 10.0 A WAIT 2000"}},
		{"nine seconds", 9 * time.Second, []string{"own 0.0 A WAIT 4500", "own 4.5 A WAIT 4500", "own 9.0 A WAIT 3000"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(waiting)
				f.timeout = tt.timeout
				_, err := New(f).Acquire(t.Context(), "job", Options{Wait: 12 * time.Second})
				if took := time.Since(f.began); err != ErrNotAcquired || took != 12*time.Second {
					t.Errorf("got %v after %v", err, took)
				}
				want := []string{"0.0 LOCK job 30000 OWNER A REQ A"}
				for _, s := range tt.sent {
					want = append(want, strings.Replace(s, "A", "LOCK job 30000 OWNER A REQ A", 1))
				}
				f.want(t, want...)
			})
		})
	}
}

// TestAcquire_UntilTheContextEnds, without a limit of its own.
func TestAcquire_UntilTheContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(waiting)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Hour)
		defer cancel()
		_, err := New(f).Acquire(ctx, "job", Options{Wait: -1})
		if took := time.Since(f.began); !errors.Is(err, context.DeadlineExceeded) || took != 2*time.Hour {
			t.Errorf("got %v after %v", err, took)
		}
		time.Sleep(time.Minute)
	})
}

// TestAcquire_KeepsConnections for the next LOCK that waits, and for no longer than idleTime.
func TestAcquire_KeepsConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(waiting)
		s := New(f)
		for range 3 {
			if _, err := s.Acquire(t.Context(), "job", Options{Wait: idleTime / 8}); err != ErrNotAcquired {
				t.Fatal(err)
			}
		}
		if len(f.conns) != 1 || f.open() != 1 {
			t.Errorf("%d connections were made, %d are open", len(f.conns), f.open())
		}
		if _, err := s.Acquire(t.Context(), "job", Options{Session: true}); err != ErrNotAcquired || len(f.conns) != 2 || f.open() != 1 {
			t.Errorf("%v; a session took a connection that was kept, or kept its own: %d were made, %d are open", err, len(f.conns), f.open())
		}
		f.conns[0].Close() // by the other side
		if _, err := s.Acquire(t.Context(), "job", Options{Wait: idleTime / 8}); err != ErrNotAcquired || len(f.conns) != 3 {
			t.Errorf("%v, %d connections were made", err, len(f.conns))
		}
		done := make(chan error)
		for range 20 {
			go func() {
				_, err := s.Acquire(t.Context(), "job", Options{Wait: idleTime / 8})
				done <- err
			}()
		}
		for range 20 {
			<-done
		}
		synctest.Wait()
		if n := f.open(); n != maxIdle {
			t.Errorf("%d connections are kept", n)
		}
		time.Sleep(idleTime)
		synctest.Wait()
		if n := f.open(); n != 0 {
			t.Errorf("%d connections are kept after %v", n, idleTime)
		}
	})
}

// TestAcquire_Cancelled returns at once, ends the connection on which it waits, and gives back what may have been granted.
func TestAcquire_Cancelled(t *testing.T) {
	cause := errors.New("no more")
	tests := []struct {
		name   string
		answer func(ctx context.Context, c *fakeConn, args []string) (any, error)
		sent   []string
	}{
		{"the client does not heed the context", func(_ context.Context, _ *fakeConn, args []string) (any, error) {
			if args[0] == "LOCK" {
				time.Sleep(5 * time.Second)
				return grant(7, 29*time.Second), nil
			}
			return int64(1), nil
		}, []string{"0.0 LOCK job 30000 OWNER A REQ A", "5.0 UNLOCK job A REQ A"}},
		{"while it waits", func(_ context.Context, c *fakeConn, args []string) (any, error) {
			switch {
			case args[0] != "LOCK":
				return int64(1), nil
			case c == nil:
				return nil, nil
			}
			return c.hang(context.Background())
		}, []string{"0.0 LOCK job 30000 OWNER A REQ A", "own 0.0 LOCK job 30000 OWNER A REQ A WAIT 5000", "2.0 UNLOCK job A REQ A"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(tt.answer)
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(2*time.Second, func() { cancel(cause) })
				_, err := New(f).Acquire(ctx, "job", Options{Wait: time.Minute})
				if took := time.Since(f.began); err != cause || took != 2*time.Second {
					t.Errorf("got %v after %v", err, took)
				}
				time.Sleep(time.Minute)
				f.want(t, tt.sent...)
				if f.open() != 0 {
					t.Error("a connection is open")
				}
			})
		})
	}
}

// TestAcquire_SilentConnection is given up, and another one takes its place.
func TestAcquire_SilentConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(nil)
		f.timeout = 4 * time.Second
		f.answer = func(ctx context.Context, c *fakeConn, args []string) (any, error) {
			switch {
			case args[0] != "LOCK":
				return int64(1), nil
			case c == nil:
				return nil, nil
			case c == f.conns[0]:
				return c.hang(ctx)
			}
			return grant(7, 29*time.Second), nil
		}
		l, err := New(f).Acquire(t.Context(), "job", Options{Wait: 12 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		f.want(t, "0.0 LOCK job 30000 OWNER A REQ A", "own 0.0 LOCK job 30000 OWNER A REQ A WAIT 2000",
			"own 6.1 LOCK job 30000 OWNER A REQ A WAIT 2000")
		_ = l.Release(t.Context())
	})
}

// TestAcquire_ContextOver asks nothing.
func TestAcquire_ContextOver(t *testing.T) {
	f := newFake(replies(grant(7, time.Second)))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := New(f).Acquire(ctx, "job", Options{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	f.want(t)
}

// holding answers LOCK, RENEW and RENEWALL with a validity of 29 s, and all else with 1.
func holding(_ context.Context, _ *fakeConn, args []string) (any, error) {
	switch args[0] {
	case "LOCK":
		return grant(7, 29*time.Second), nil
	case "RENEW", "RENEWALL":
		return int64(29_000), nil
	}
	return int64(1), nil
}

func TestDo(t *testing.T) {
	failed := errors.New("failed")
	tests := []struct {
		name string
		f    func(context.Context, *Lock) error
		err  error
		text string
	}{
		{"nothing happens", func(context.Context, *Lock) error { return nil }, nil, ""},
		{"it fails", func(context.Context, *Lock) error { return failed }, failed, "failed"},
		{"its time is over", func(ctx context.Context, _ *Lock) error {
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), ErrLost) {
				return context.Cause(ctx)
			}
			return nil
		}, ErrLost, "lockproxy: the lock was lost: its time is over"},
		{"its time is over, and it says so", func(ctx context.Context, _ *Lock) error {
			<-ctx.Done()
			return context.Cause(ctx)
		}, ErrLost, "lockproxy: the lock was lost: its time is over"},
		{"its time is over, and it fails", func(ctx context.Context, _ *Lock) error {
			<-ctx.Done()
			return failed
		}, failed, "failed\nlockproxy: the lock was lost: its time is over"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(holding)
				told := 0
				err := New(f).Do(t.Context(), "job", Options{NoRenew: true, OnLost: func(error) { told++ }}, tt.f)
				if !errors.Is(err, tt.err) || err != nil && err.Error() != tt.text {
					t.Errorf("got %v, want %q", err, tt.text)
				}
				synctest.Wait()
				lost := time.Since(f.began) == 29*time.Second
				if last := f.last(); !strings.Contains(last, "UNLOCK") || lost != (told == 1) || lost != errors.Is(err, ErrLost) {
					t.Errorf("at the end %q; told %d times of a loss; %v", last, told, err)
				}
			})
		})
	}
}

// TestDo_Panic: the lock is given back.
func TestDo_Panic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(holding)
		defer func() {
			if recover() != "oops" {
				t.Error("no panic")
			}
			f.want(t, "0.0 LOCK job 30000 OWNER A REQ A", "0.0 UNLOCK job A REQ A")
		}()
		_ = New(f).Do(t.Context(), "job", Options{}, func(context.Context, *Lock) error { panic("oops") })
	})
}

// TestDo_Cancelled: the lock is kept until the function has returned, and given back though the context is over.
func TestDo_Cancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(holding)
		ctx, cancel := context.WithCancel(t.Context())
		err := New(f).Do(ctx, "job", Options{}, func(within context.Context, l *Lock) error {
			cancel()
			<-within.Done()
			time.Sleep(11 * time.Second)
			if l.Err() != nil {
				t.Error(l.Err())
			}
			return within.Err()
		})
		if err != context.Canceled {
			t.Error(err)
		}
		f.want(t, "0.0 LOCK job 30000 OWNER A REQ A", "10.0 RENEW job 30000 A FENCE 7", "11.0 UNLOCK job A REQ A")
	})
}
