package adopt

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockproxy/lockproxy/backends/metrics"
)

// TestReport: each call is counted once, under its class and with its outcome.
func TestReport(t *testing.T) {
	p := proxies(t, 1, "lock:* no-expiry=refuse", "job:* as=strict")[0]
	const raises = `return redis.error_reply('no') .. ARGV[1]`
	for _, args := range []string{
		"SET lock:a me NX PX 5000", "SET lock:a you NX PX 5000", "GET lock:a", "PEXPIRE lock:a 9000", "DEL lock:a", "DEL lock:a",
		"SET lock:a me NX", "SET lock:a me NX PX 999999", "INCR lock:a", "DEL job:a",
	} {
		p.do(strings.Fields(args)...)
	}
	p.do("EVAL", compareAndDelete, "1", "lock:a", "me")
	p.do("EVAL", raises, "1", "lock:a", "me")
	_, _ = p.a.Queue(p, &Transaction{}, [][]byte{[]byte("GET"), []byte("lock:a")}, Keys{[]int{1}, true}, UpstreamTx{Queued: true})
	p.no = errors.New("NOPERM")
	p.do("SET", "lock:b", "me", "NX", "PX", "5000")
	all := metrics.Registry{p.a}
	for _, tt := range []struct {
		name   string
		labels []string
		want   float64
	}{
		{"calls_total", []string{"class", "ACQ", "outcome", "granted"}, 1},
		{"calls_total", []string{"class", "ACQ", "outcome", "held"}, 1},
		{"calls_total", []string{"class", "ACQ", "outcome", "refused"}, 2},
		{"calls_total", []string{"class", "ACQ", "outcome", "failed"}, 1},
		{"calls_total", []string{"class", "READ", "outcome", "none"}, 1},
		{"calls_total", []string{"class", "FORCE-EXTEND", "outcome", "done"}, 1},
		{"calls_total", []string{"class", "FORCE-RELEASE", "outcome", "done"}, 1},
		{"calls_total", []string{"class", "FORCE-RELEASE", "outcome", "none"}, 1},
		{"calls_total", []string{"class", "FORCE-RELEASE", "outcome", "refused"}, 1},
		{"calls_total", []string{"class", "RELEASE", "outcome", "none"}, 1},
		{"calls_total", []string{"class", "unclear", "outcome", "refused"}, 3},
		{"refused_total", []string{"reason", "no_expiry"}, 1},
		{"refused_total", []string{"reason", "over_max_ttl"}, 1},
		{"refused_total", []string{"reason", "not_for_locks"}, 1},
		{"refused_total", []string{"reason", "not_clear"}, 1},
		{"refused_total", []string{"reason", "strict"}, 1},
		{"refused_total", []string{"reason", "transaction"}, 1},
		{"refused_total", []string{"reason", "other"}, 0},
		{"scripts", nil, 2},
		{"patterns", nil, 2},
	} {
		if s := all.Sample("lockproxy_adopt_"+tt.name, tt.labels...); s == nil || s.Value != tt.want {
			t.Errorf("%s %v: %+v, not %v", tt.name, tt.labels, s, tt.want)
		}
	}
	for operation, want := range map[string]int64{"take": 2, "change": 2, "read": 3} {
		if s := all.Sample("lockproxy_adopt_seconds", "operation", operation); s == nil || s.Durations.Count() != want {
			t.Errorf("%s: %+v, not %d", operation, s, want)
		}
	}
	got := map[string]any{}
	p.a.Info(func(name string, value any) { got[name] = value })
	if got["adopt_calls"] != int64(14) || got["adopt_refused"] != int64(6) || got["adopt_patterns"] != 2 {
		t.Errorf("INFO: %v", got)
	}
	var none *Adoption
	none.Report(&metrics.Report{})
	none.Info(nil)
}

// TestReport_SignalsAndGuard: what the upstream has answered, what it has not, and what it has.
func TestReport_SignalsAndGuard(t *testing.T) {
	p := proxies(t, 1, "lock:*")[0]
	for _, gone := range []error{nil, errors.New("the upstream is gone")} {
		p.do("SET", "lock:a", "me", "NX", "PX", "5000")
		p.gone = gone
		if got := p.do("EVAL", freeAndTell, "1", "lock:a"); got != ":1" {
			t.Error(got)
		}
		p.gone = nil
	}
	p.has = ":5000\r\n"
	p.do("SET", "lock:a", "me", "NX", "PX", "5000")
	for _, name := range []string{"signals_sent_total", "signals_lost_total", "upstream_held_total"} {
		if s := (metrics.Registry{p.a}).Sample("lockproxy_adopt_" + name); s == nil || s.Value != 1 {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// TestLogRefusal: one line a minute for each pattern and command, which tells how many were left out, and never a value.
func TestLogRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := proxies(t, 1, "lock:*", "job:*")[0]
		var out bytes.Buffer
		p.a.opt.Log = slog.New(slog.NewTextHandler(&out, nil))
		const raises = `if redis.call('get', KEYS[1]) then return 1 end error(ARGV[1])`
		for range 3 {
			p.do("INCR", "lock:a")
		}
		p.do("INCR", "job:a")
		p.do("EVAL", raises, "1", "lock:a", "secret")
		if lines := strings.Count(out.String(), "\n"); lines != 3 {
			t.Errorf("%d lines, not 3:\n%s", lines, &out)
		}
		time.Sleep(time.Minute)
		p.do("INCR", "lock:a")
		for _, want := range []string{
			"level=WARN", "command=INCR", "lock=lock:a", "pattern=job:*", "reason=not_for_locks", "command=EVAL", "script=", "class=unclear", "reason=not_clear", "left_out=2",
		} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("no %s in\n%s", want, &out)
			}
		}
		if strings.Contains(out.String(), "secret") {
			t.Errorf("a value is in the log:\n%s", &out)
		}
	})
}

// TestLogRefusal_RaisedText: the text of a script's own error may be a value, which only its client is told.
func TestLogRefusal_RaisedText(t *testing.T) {
	p := proxies(t, 1, "lock:*")[0]
	var out bytes.Buffer
	p.a.opt.Log = slog.New(slog.NewTextHandler(&out, nil))
	raises := func(v string) []string {
		return []string{"EVAL", `if ARGV[1] == 'secret' then error(ARGV[1]) end ` + compareAndDelete, "1", "lock:a", v}
	}
	if got := p.do(raises("fine")...); got != ":0" {
		t.Fatal(got)
	}
	if got := p.do(raises("secret")...); !strings.HasPrefix(got, "ADOPTREFUSED EVAL lock:a: ") || !strings.Contains(got, "secret") {
		t.Errorf("the client is told: %s", got)
	}
	if strings.Contains(out.String(), "secret") || !strings.Contains(out.String(), "the script raises an error") {
		t.Errorf("the log:\n%s", &out)
	}
}

// TestNoteRefusal: refusals that are told before a call is decided are counted and logged as well.
func TestNoteRefusal(t *testing.T) {
	p := proxies(t, 1, "lock:*")[0]
	var out bytes.Buffer
	p.a.opt.Log = slog.New(slog.NewTextHandler(&out, nil))
	get := [][]byte{[]byte("GET"), []byte("lock:a")}
	_, _ = p.a.Queue(p, &Transaction{}, get, Keys{[]int{1}, true}, UpstreamTx{Queued: true})
	call, err := p.a.Call(p, [][]byte{[]byte("TTL"), []byte("lock:a")}, Keys{[]int{1}, true})
	if err != nil {
		t.Fatal(err)
	}
	_ = p.a.RefusedTracked(p, call)
	for _, reason := range []string{"transaction", "tracking"} {
		if s := (metrics.Registry{p.a}).Sample("lockproxy_adopt_refused_total", "reason", reason); s == nil || s.Value != 1 {
			t.Errorf("%s: %+v", reason, s)
		}
		if !strings.Contains(out.String(), "reason="+reason) {
			t.Errorf("no line of %s in\n%s", reason, &out)
		}
	}
}
