package copying

import (
	"bytes"
	"errors"
	"log/slog"
	"reflect"
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

// TestAdd_KeepsWhatAnyNodeKnows: every owner's holds, until the last of them ends by any node.
func TestAdd_KeepsWhatAnyNodeKnows(t *testing.T) {
	o := newReading(nil)
	for _, p := range []page{
		{floor: 5, holdings: []holding{{"0:job", 900, owned{"walice", []string{"a1", "a2"}}}}, requests: map[string]request{"LTAG": {"3", 50}}},
		{floor: 9, holdings: []holding{{"0:job", 400, owned{"walice", []string{"a2", "a3"}}}, {"0:job", 300, owned{"wbob", []string{"b1"}}}}, requests: map[string]request{"LTAG": {"4", 60}}},
		{floor: 7, holdings: []holding{{"0:job", 500, owned{"walice", nil}}}, requests: map[string]request{"LTAG": {"3", 50}}},
	} {
		o.add(&p)
	}
	job := o.names["0:job"]
	want := heldName{900, []owned{{"walice", []string{"a1", "a2", "a3"}}, {"wbob", []string{"b1"}}}}
	if o.floor != 9 || len(o.names) != 1 || !reflect.DeepEqual(*job, want) || o.requests["LTAG"].value != "4" {
		t.Errorf("floor %d, %+v, requests %v", o.floor, job, o.requests)
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
		o := newReading(set, 0)
		if err := o.readOthers(t.Context()); !errors.Is(err, errTooFew) {
			t.Errorf("of %d nodes, of which none is there: %v", len(addrs), err)
		}
		if err := set.Close(0); err != nil {
			t.Error(err)
		}
	}
}
