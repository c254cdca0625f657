package copying

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends"
	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/voters"
	"github.com/lockproxy/lockproxy/backends/loglimit"
)

// TestTry_AgainAfterItsEnd: copies for one loss are a second apart, however long they take, and those for others do not wait.
func TestTry_AgainAfterItsEnd(t *testing.T) {
	node, err := backends.Parse("127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Hour
	takesAMinute := locks.RandSource{NewText: func() string {
		now += time.Minute
		return "id"
	}}
	set, err := voters.New(voters.Options{Nodes: []*backends.Server{node}, Now: func() time.Duration { return now }, Random: takesAMinute, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = set.Close(0) })
	c := newCopier(set)
	check := func(what string, want string, wait time.Duration, forgotten ...voters.Forgotten) []voters.Forgotten {
		t.Helper()
		due, next := c.due(forgotten)
		gens := ""
		for _, f := range due {
			gens += f.Gen
		}
		if gens != want || next != wait && want == "" {
			t.Errorf("%s: due are %q, or one is in %v; want %q, %v", what, gens, next, want, wait)
		}
		return due
	}
	first, later := voters.Forgotten{Gen: "a", MayCopy: true, CopyAt: now}, voters.Forgotten{Gen: "b", MayCopy: true, CopyAt: now + time.Hour}
	check("nothing is to be done", "", 0)
	check("it may not", "", 0, voters.Forgotten{Gen: "a", CopyAt: now})
	check("it may later", "", time.Hour, later)
	soon, inAWhile := voters.Forgotten{Gen: "s", MayCopy: true, CopyAt: now + together}, voters.Forgotten{Gen: "w", MayCopy: true, CopyAt: now + together + 1}
	check("another one may soon", "", together, first, soon)
	check("another one may in a while", "a", 0, first, inAWhile)
	due := check("two may at once", "ac", 0, later, first, voters.Forgotten{Gen: "c", MayCopy: true, CopyAt: now})
	c.try(t.Context(), due[:1])
	check("after a copy", "", retryDelay, later, first)
	check("it has forgotten again", "d", 0, first, voters.Forgotten{Gen: "d", MayCopy: true, CopyAt: now})
	now += retryDelay
	check("a second later", "a", 0, later, first)
}

// TestLogFailed_OnceAMinute: copies for a node that fail every second are a line at once and one a minute.
func TestLogFailed_OnceAMinute(t *testing.T) {
	node, err := backends.Parse("127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	now, log := time.Duration(0), bytes.Buffer{}
	set, err := voters.New(voters.Options{Nodes: []*backends.Server{node}, Now: func() time.Duration { return now }, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	c := &copier{set: set}
	for i, want := range map[int]int{1: 1, 59: 1, 120: 3} {
		log.Reset()
		c.failed = make([]loglimit.Limit, 1)
		for range i + 1 {
			c.logFailed(0, errTooFew)
			now += time.Second
		}
		if got := strings.Count(log.String(), "does not know yet"); got != want {
			t.Errorf("%d lines in %d s, want %d:\n%s", got, i, want, &log)
		}
	}
}

// TestAdd_WhatIsNew: every hold of every owner is copied once, and once more where another node shows it to last longer.
func TestAdd_WhatIsNew(t *testing.T) {
	r := newReading(nil)
	for _, p := range []struct {
		what string
		at   time.Duration
		page page
		want [][]string
	}{
		{
			"the first page", time.Minute,
			page{floor: 5, maxTTL: 60000, holdings: []holding{{"0:job", "walice", 900, []string{"a1", "a2"}}}, requests: map[string]request{"LTAG": {"3", 50}}},
			[][]string{{"0:job", "walice", "1000", "2", "a1", "a2"}},
		},
		{
			"the same of another node, 100 ms later", time.Minute + 100*time.Millisecond,
			page{floor: 9, maxTTL: 60000, holdings: []holding{{"0:job", "walice", 900, []string{"a1", "a2"}}}, requests: map[string]request{"LTAG": {"4", 60}}},
			nil,
		},
		{
			"another hold, another owner, and an end that is later", time.Minute + 100*time.Millisecond,
			page{floor: 7, maxTTL: 60000, holdings: []holding{{"0:job", "walice", 901, []string{"a2", "a3"}}, {"0:job", "wbob", 300, []string{"b1"}}, {"1:job", "walice", 300, []string{"a1"}}}, requests: map[string]request{"LTAG": {"3", 50}}},
			[][]string{{"0:job", "walice", "1001", "2", "a2", "a3", "0:job", "wbob", "400", "1", "b1", "1:job", "walice", "400", "1", "a1"}},
		},
		{
			"no node lets a lease run for longer than its max-ttl", 2 * time.Minute,
			page{maxTTL: 60000, holdings: []holding{{"0:job", "walice", 60000, []string{"a1"}}}},
			[][]string{{"0:job", "walice", "60000", "1", "a1"}},
		},
		{
			"renewed for max-ttl since", 2*time.Minute + time.Millisecond,
			page{maxTTL: 60000, holdings: []holding{{"0:job", "walice", 60000, []string{"a1"}}}},
			[][]string{{"0:job", "walice", "60000", "1", "a1"}},
		},
	} {
		if parts := r.add(&p.page, p.at); !reflect.DeepEqual(parts, p.want) {
			t.Errorf("%s: parts %q, want %q", p.what, parts, p.want)
		}
	}
	if r.floor != 9 || len(r.names) != 2 || r.requests["LTAG"].value != "4" || r.longest() != 60000 {
		t.Errorf("floor %d, names %v, requests %v, max-ttl %d", r.floor, r.names, r.requests, r.longest())
	}
}

// TestAdd_InParts: what one name has may be more than one call takes.
func TestAdd_InParts(t *testing.T) {
	r := newReading(nil)
	ids := make([]string, 2*partSize+1)
	for i := range ids {
		ids[i] = strconv.Itoa(i)
	}
	parts, got := r.add(&page{maxTTL: 60000, holdings: []holding{{"0:job", "walice", 900, slices.Clone(ids)}}}, 0), []string(nil)
	for _, part := range parts {
		if n, _ := strconv.Atoi(part[3]); n != len(part)-4 || n > partSize {
			t.Errorf("%d of %d holds are in a part", n, len(part)-4)
		}
		got = append(got, part[4:]...)
	}
	if !slices.Equal(got, ids) {
		t.Errorf("%d holds in %d parts, want %d", len(got), len(parts), len(ids))
	}
}

// TestPage_Damaged: what a node shows is read as a whole, or not at all.
func TestPage_Damaged(t *testing.T) {
	for _, c := range []struct {
		holds, requests string
		want            []holding
		bad             bool
	}{
		{holds: "0:job walice 900 2 a1 a2 1:job rbob 5 1 b1", want: []holding{{"0:job", "walice", 900, []string{"a1", "a2"}}, {"1:job", "rbob", 5, []string{"b1"}}}},
		{requests: "LTAG 3 50"},
		{holds: "0:job walice 900", bad: true},
		{holds: "0:job walice 900 2 a1", bad: true},
		{holds: "0:job walice 900 -1 a1", bad: true},
		{holds: "0:job walice soon 1 a1", bad: true},
		{holds: "0:job walice 900 one a1", bad: true},
		{requests: "LTAG 3 soon", bad: true},
		{requests: "LTAG 3 50 UTAG", bad: true},
	} {
		p := page{requests: map[string]request{}}
		err := errors.Join(p.readHoldings(strings.Fields(c.holds)), p.readRequests(strings.Fields(c.requests)))
		if (err != nil) != c.bad || err == nil && (!reflect.DeepEqual(p.holdings, c.want) || len(p.requests) != len(strings.Fields(c.requests))/3) {
			t.Errorf("%q, %q: %+v, %v", c.holds, c.requests, p, err)
		}
	}
}

// TestReadOthers_TooFew: a node that is alone, or one of two, has no quorum of others.
func TestReadOthers_TooFew(t *testing.T) {
	for _, addrs := range [][]string{{"127.0.0.1:1"}, {"127.0.0.1:1", "127.0.0.1:2"}, {"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"}} {
		var nodes []*backends.Server
		for _, a := range addrs {
			node, err := backends.Parse(a)
			if err != nil {
				t.Fatal(err)
			}
			nodes = append(nodes, node)
		}
		set, err := voters.New(voters.Options{Nodes: nodes})
		if err != nil {
			t.Fatal(err)
		}
		o := newReading(set, &nodeCopy{node: 0})
		if err := o.readOthers(t.Context()); !errors.Is(err, errTooFew) || errors.Is(err, context.Canceled) {
			t.Errorf("of %d nodes, of which none is there: %v", len(addrs), err)
		}
		if err := set.Close(0); err != nil {
			t.Error(err)
		}
	}
}
