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
	"github.com/lockproxy/lockproxy/backends/locks/voters"
	"github.com/lockproxy/lockproxy/backends/loglimit"
)

// TestDue_WaitsByItsOwnClock: a node whose clock was set forward says too early that nobody counts its old votes any more.
func TestDue_WaitsByItsOwnClock(t *testing.T) {
	now := time.Hour
	node, err := backends.Parse("127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	set, err := voters.New(voters.Options{Nodes: []*backends.Server{node}, Now: func() time.Duration { return now }})
	if err != nil {
		t.Fatal(err)
	}
	c := &copier{set: set, begin: map[loss]time.Duration{}}
	due := func(f ...voters.Forgotten) (int, time.Duration) {
		next, wait := c.due(f)
		if next == nil {
			return -1, wait
		}
		return next.Node, wait
	}
	at := func(node int, gen string, may bool, in time.Duration) voters.Forgotten {
		return voters.Forgotten{Node: node, Gen: gen, MayCopy: may, CopyAt: in}
	}
	for _, step := range []struct {
		what      string
		after     time.Duration
		forgotten []voters.Forgotten
		node      int
		wait      time.Duration
	}{
		{"nothing is to be done", 0, nil, -1, 0},
		{"just seen, and it says at once", 0, []voters.Forgotten{at(0, "a", true, 0)}, 0, copyDelay},
		{"a second later", time.Second, []voters.Forgotten{at(0, "a", true, 0)}, 0, copyDelay - time.Second},
		{"another may not yet", 0, []voters.Forgotten{at(0, "a", true, 0), at(1, "b", false, 0)}, 0, copyDelay - time.Second},
		{"it may, and was seen all the while", copyDelay, []voters.Forgotten{at(1, "b", true, 0)}, 1, 0},
		{"it has forgotten again", 0, []voters.Forgotten{at(1, "c", true, 0)}, 1, copyDelay},
		{"its own clock is behind", copyDelay, []voters.Forgotten{at(1, "c", true, time.Minute)}, 1, time.Minute},
	} {
		now += step.after
		for i := range step.forgotten {
			step.forgotten[i].CopyAt += now
		}
		if node, wait := due(step.forgotten...); node != step.node || wait != step.wait {
			t.Errorf("%s: node %d in %v, want node %d in %v", step.what, node, wait, step.node, step.wait)
		}
	}
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
	o := &nodeCopy{names: map[string]*heldName{}, requests: map[string]request{}}
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
		o := &nodeCopy{set: set, names: map[string]*heldName{}, requests: map[string]request{}}
		if err := o.readOthers(t.Context()); !errors.Is(err, errTooFew) {
			t.Errorf("of %d nodes, of which none is there: %v", len(addrs), err)
		}
		if err := set.Close(0); err != nil {
			t.Error(err)
		}
	}
}
