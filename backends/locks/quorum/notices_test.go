package quorum

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/integration/redistest"
)

func TestPost(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartNodes(t, 3)
	p := rivals(t, 2, nodes)
	allVote(t, p[0])
	post := func(i int, text string, keep time.Duration, want ...string) {
		t.Helper()
		all, err := p[i].Post(t.Context(), locks.PostRequest{Notice: locks.Notice{ID: fmt.Sprint("proxy", i), Text: text}, Keep: keep})
		if got := noticeTexts(all); err != nil || !slices.Equal(got, want) {
			t.Errorf("proxy%d posts %q: %q, %v, want %q", i, text, got, err, want)
		}
	}
	post(0, "a \x00\xff\r\n", time.Minute, "proxy0 a \x00\xff\r\n")
	post(1, "b", time.Minute, "proxy0 a \x00\xff\r\n", "proxy1 b")
	post(0, "c", time.Minute, "proxy0 c", "proxy1 b")
	post(1, "", time.Minute, "proxy0 c")
	nodes[2].Kill()
	post(1, "d", time.Minute, "proxy0 c", "proxy1 d")
	if err := nodes[2].Restart(); err != nil {
		t.Fatal(err)
	}
	post(1, "soon over", time.Millisecond, "proxy0 c", "proxy1 soon over")
	eventually(t, 20*time.Second, "the notice is gone", func() bool {
		all, err := p[0].Post(t.Context(), locks.PostRequest{Notice: locks.Notice{ID: "proxy0", Text: "e"}, Keep: time.Minute})
		return err == nil && slices.Equal(noticeTexts(all), []string{"proxy0 e"})
	})
	c := redistest.Open(t, nodes[0].Addr())
	if ids := c.Do(t, "HKEYS", "lockproxy:adopt"); len(ids.Elems) != 1 || ids.Elems[0].Text != "proxy0" {
		t.Errorf("ids %v", ids)
	}
	if left := c.Do(t, "PTTL", "lockproxy:adopt").Int(); left <= 0 || left > 60_000 {
		t.Errorf("the ids stay for %d ms", left)
	}
	nodes[1].Kill()
	nodes[2].Kill()
	q := (*locks.QuorumError)(nil)
	if all, err := p[1].Post(t.Context(), locks.PostRequest{Notice: locks.Notice{ID: "proxy1", Text: "f"}, Keep: time.Minute}); !errors.As(err, &q) ||
		!slices.Equal(noticeTexts(all), []string{"proxy0 e", "proxy1 f"}) {
		t.Errorf("with one of three nodes: %q, %v", noticeTexts(all), err)
	}
}

// TestPost_Unused: with Unused, Post writes nothing to an upstream that is a lock node by default, until a lock is asked for.
func TestPost_Unused(t *testing.T) {
	t.Parallel()
	node := redistest.Start(t)
	s := serve(t, testOptions{Nodes: nodesAt(t, node.Addr()), OnDemand: true, NodeTimeout: patient})
	r := locks.PostRequest{Notice: locks.Notice{ID: "one", Text: "a"}, Keep: time.Minute, Unused: true}
	c := redistest.Open(t, node.Addr())
	if all, err := s.Post(t.Context(), r); !errors.Is(err, locks.ErrUnused) || len(all) > 0 || c.Do(t, "DBSIZE").Int() != 0 {
		t.Errorf("%v, %v; %d keys", all, err, c.Do(t, "DBSIZE").Int())
	}
	lock(t, s, "job", "alice", time.Minute)
	eventually(t, 20*time.Second, "it is posted", func() bool {
		all, err := s.Post(t.Context(), r)
		return err == nil && len(all) == 1
	})
}

func noticeTexts(all []locks.Notice) (texts []string) {
	for _, n := range all {
		texts = append(texts, n.ID+" "+n.Text)
	}
	slices.Sort(texts)
	return texts
}
