package voters

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/vote"
	"github.com/lockproxy/lockproxy/scripts"
)

// TestBatch: each word is a call: a acquires, r releases, n renews, w reads, and what follows is the name; x+y are a release and what is
// to come right behind it. Commands are apart by a bar.
func TestBatch(t *testing.T) {
	t.Parallel()
	s := &Set{commonArgs: []string{"1", "2", "3", "4"}}
	kinds := map[byte]*scripts.Script{'a': scripts.Acquire, 'r': scripts.Release, 'n': scripts.Renew, 'w': scripts.Read}
	for _, tt := range []struct{ calls, want string }{
		{"", ""},
		{"a1", "a1"},
		{"a1 a2 a3", "a1 a2 a3"},
		{"a1 r2 a3 r4", "a1 a3 | r2 r4"},
		{"r1 n2 r3", "r1 n2 r3"},
		{"a1 r1", "a1 | r1"},
		{"a1 r1 a1 r2 a2", "a1 | r1 r2 | a1 a2"}, // what is about one name stays in order
		{"a1 r2 a2 a3", "a1 | r2 | a2 a3"},
		{"r1+a1 r2 a3", "r1+a1 r2 | a3"},
		{"a3 r1+a1 r2+a2 a1", "a3 | r1+a1 r2+a2 | a1"},
		{"a1 w2 a3 r4 w5", "a1 | w2 | a3 | r4 | w5"}, // what is not joined stays where it is
		{strings.Repeat("a1 ", maxJoined+1), strings.TrimSpace(strings.Repeat("a1 ", maxJoined)) + " | a1"},
		{strings.Repeat("a1 ", maxJoined-1) + "r2+a2", strings.TrimSpace(strings.Repeat("a1 ", maxJoined-1)) + " | r2+a2"},
		{strings.Repeat("r1 ", maxJoined-1) + "r2+a2 r3", strings.TrimSpace(strings.Repeat("r1 ", maxJoined-1)) + " | r2+a2 r3"},
	} {
		var calls []ScriptCall
		texts := map[string]string{} // by what the call is known by
		for _, word := range strings.Fields(tt.calls) {
			var behind *Round
			for i, one := range strings.Split(word, "+") {
				id := fmt.Sprint(len(calls))
				j := ScriptCall{Args: s.Command(kinds[one[0]], s.RedisKeys(locks.Key{Name: one[1:]}), id), Round: &Round{}, behind: behind}
				if behind = j.Round; i > 0 {
					one = "+" + one
				}
				texts[id], calls = one, append(calls, j)
			}
		}
		var b batcher
		for range 2 { // it is used again and again
			var got []string
			for _, c := range b.batch(slices.Clone(calls)) {
				var words string
				for i := range c.calls {
					words += " " + texts[c.calls[i].Args[len(c.calls[i].Args)-1]]
				}
				got = append(got, strings.TrimSpace(strings.ReplaceAll(words, " +", "+")))
			}
			if got := strings.Join(got, " | "); got != tt.want {
				t.Errorf("%s: %s, want %s", tt.calls, got, tt.want)
			}
			b.forget()
		}
	}
}

// TestBatch_Args: the command of several calls has the keys of each, and the arguments that are its own.
func TestBatch_Args(t *testing.T) {
	t.Parallel()
	s := &Set{commonArgs: []string{"1", "2", "3", "4"}}
	writer, reader := s.RedisKeys(locks.Key{Name: "w"}), s.RedisKeys(locks.Key{Name: "r", Reader: "me"})
	release, acquire := &Round{}, &Round{}
	calls := []ScriptCall{
		{Args: s.Command(scripts.Release, reader, "a")},
		{Args: s.Command(scripts.Release, writer, "b", "c"), Round: release},
		{Args: s.Command(scripts.Acquire, writer, "d"), Round: acquire, behind: release},
		{Args: s.Command(scripts.Renew, reader)},
		{Args: s.Command(scripts.Release, s.RedisKeys(locks.Key{Name: "x"}), "e"), behind: &Round{}}, // of a call that is not sent
	}
	c := command{calls: calls}
	want := []string{
		"EVALSHA", scripts.Calls.SHA1, "12",
		"read:0:1:rme", "readfence:0:1:rme", "node", "lock:0:r", "lock:0:w", "fence:0:w", "read:0:1:rme", "readfence:0:1:rme", "lock:0:r", "lock:0:x", "fence:0:x",
		"1", "2", "3", "4",
		"release", "3", "1", "a", "release", "2", "2", "b", "c", "acquire", "0", "1", "d", "renew", "3", "0", "release", "2", "1", "e",
	}
	want[2] = fmt.Sprint(slices.Index(want, "1") - 3)
	if got := c.args(); !slices.Equal(got, want) {
		t.Errorf("%q\nwant\n%q", got, want)
	}
}

// TestBatch_Unanswered: calls of a joined command that was sent may have been done, even if the answer does not count.
func TestBatch_Unanswered(t *testing.T) {
	t.Parallel()
	h := newHandOver(t)
	h.do(func() { h.mute, h.down = true, true })
	rounds := []*Round{h.set.Begin(AskAcquire, WaitForAll), h.set.Begin(AskAcquire, WaitForAll)}
	var calls []ScriptCall
	for i, name := range []string{"x", "y"} {
		j := ScriptCall{Args: h.set.Command(scripts.Acquire, h.set.RedisKeys(locks.Key{Name: name}), "bob", "60000", "0", "", "plain", name, "0", "", "0"),
			Parse: vote.ParseAcquire, Expires: h.set.Clock() + time.Minute, Durable: true, Round: rounds[i]}
		calls = append(calls, j)
	}
	h.set.Members[0].Push(calls...)
	for _, r := range rounds {
		if v := h.vote(r); v.Kind != vote.Silent || v.Err == nil || v.Unsent {
			t.Errorf("%+v", v)
		}
	}
	h.wants("calls")
}
