package voters

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks/vote"
	"github.com/lockproxy/lockproxy/backends/loglimit"
)

// newLogged is a Set of three nodes that logs to a buffer, and its clock.
func newLogged(t *testing.T) (s *Set, log *bytes.Buffer, now *time.Duration) {
	t.Helper()
	log, now = &bytes.Buffer{}, new(time.Duration)
	*now = time.Hour
	s, err := New(Options{
		Nodes: servers(t, "127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"), Log: slog.New(slog.NewTextHandler(log, nil)),
		Now: func() time.Duration { return *now },
	})
	if err != nil {
		t.Fatal(err)
	}
	return s, log, now
}

// linesOf are the lines of a log with all of the texts.
func linesOf(log *bytes.Buffer, texts ...string) (found []string) {
	for line := range strings.Lines(log.String()) {
		has := true
		for _, text := range texts {
			has = has && strings.Contains(line, text)
		}
		if has {
			found = append(found, line)
		}
	}
	return found
}

// TestRecordStatus_FlappingNodes: nodes that go and come each second for ten minutes have a line at once, one a minute later, and
// one when they are down for good.
func TestRecordStatus_FlappingNodes(t *testing.T) {
	s, log, now := newLogged(t)
	yes, down := vote.Vote{Kind: vote.Yes}, vote.Vote{Err: ErrTimeout}
	s.recordStatus([]vote.Vote{yes, yes, yes})
	log.Reset()
	for i := range 600 {
		*now += time.Second
		votes := []vote.Vote{yes, down, down}
		if i%2 == 1 {
			votes = []vote.Vote{yes, yes, yes}
		}
		s.recordStatus(votes)
		if i == 0 && (len(linesOf(log, "state=down")) != 2 || len(linesOf(log, "quorum lost")) != 1) {
			t.Fatalf("not logged at once:\n%s", log)
		}
	}
	for _, texts := range [][]string{{"lock node", "127.0.0.1:2"}, {"lock node", "127.0.0.1:3"}, {"lock quorum"}} {
		if lines := linesOf(log, texts...); len(lines) > loglimit.Changes.First+10 || len(linesOf(log, append(texts, "left_out=59")...)) == 0 {
			t.Errorf("%q: %d lines in ten minutes, of which these are the last:\n%s", texts, len(lines), strings.Join(lines[max(0, len(lines)-3):], ""))
		}
	}
	log.Reset()
	for range 30 {
		*now += time.Second
		s.recordStatus([]vote.Vote{yes, yes, down})
	}
	if lines := linesOf(log, "127.0.0.1:3", "level=WARN", "state=down"); len(lines) != 1 {
		t.Errorf("%d lines say that a node is down:\n%s", len(lines), log)
	}
	if lines := linesOf(log, "quorum"); len(lines) > 1 || len(linesOf(log, "lost:")) > 0 {
		t.Errorf("of a quorum that votes:\n%s", log)
	}
}

// TestRecordStatus_RestartsOfANode: each change of a node that is restarted twice in a minute has its line, and so have those of a
// restart after a minute without changes.
func TestRecordStatus_RestartsOfANode(t *testing.T) {
	s, log, now := newLogged(t)
	yes := vote.Vote{Kind: vote.Yes}
	steps := []vote.Vote{{Err: ErrTimeout}, {Code: vote.NoRecord, Err: vote.ErrNoRecord}, {Code: vote.Quarantined, Err: vote.ErrNoRecord}, yes}
	s.recordStatus([]vote.Vote{yes, yes, yes})
	for _, pause := range []time.Duration{time.Minute, time.Second, time.Minute} {
		*now += pause
		log.Reset()
		for _, v := range steps {
			*now += time.Second
			s.recordStatus([]vote.Vote{yes, v, yes})
		}
		if lines := linesOf(log, "lock node"); len(lines) != len(steps) || len(linesOf(log, "left_out")) > 0 {
			t.Errorf("a restart after %v without a change:\n%s", pause, log)
		}
	}
}
