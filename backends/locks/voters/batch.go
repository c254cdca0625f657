package voters

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/backends/locks/vote"
	"github.com/lockproxy/lockproxy/scripts"
)

// HandOver asks all nodes for a release, whose round it returns, and right behind that for an acquire of the same name,
// which has a round of its own: in one script call wherever both are to be sent.
func (s *Set) HandOver(release, acquire ScriptCall, enough func([]vote.Vote) bool) *Round {
	release.Round = s.Begin(AskRelease, enough)
	acquire.behind = release.Round
	s.fanOut.Lock()
	defer s.fanOut.Unlock()
	for _, n := range s.Members {
		n.Push(release, acquire)
	}
	return release.Round
}

// maxJoined is how many calls are sent as one command at most: other clients of the node wait so long.
const maxJoined = 32

// joinable is the script with this SHA-1, if its calls may be sent as one command; else nil.
func joinable(sha1 string) *scripts.Script {
	for _, s := range [...]*scripts.Script{scripts.Acquire, scripts.Release, scripts.Renew} {
		if s.SHA1 == sha1 {
			return s
		}
	}
	return nil
}

// A command is calls that are sent as one: of the script calls, unless it is a single one.
type command struct {
	calls    []ScriptCall
	acquires bool // all of them acquire; else none does but behind a release that hands its name over
}

// A batcher puts the calls of a batch into commands; each node's worker has one. Most of what a call costs a node is the same for
// all calls of a command. Calls about one name stay in their order, and so do those that are not joined, with all others. Acquires are
// apart from the rest, since a full node refuses them only where no write comes before in their command.
type batcher struct {
	commands []command
	first    int            // calls are not joined to the commands before this one
	last     map[string]int // by name: the last command that is about it
}

// batch returns the commands that calls are sent as, which are good until forget.
func (b *batcher) batch(calls []ScriptCall) []command {
	for len(calls) > 0 {
		k := 1
		if len(calls) > 1 && calls[1].isBehind(&calls[0]) {
			k = 2
		}
		b.add(calls[:k:k])
		calls = calls[k:]
	}
	return b.commands
}

func (b *batcher) add(calls []ScriptCall) {
	name, script := calls[0].about()
	if script == nil {
		b.commands = append(b.commands, command{calls: calls})
		b.first = len(b.commands)
		return
	}
	acquires := script == scripts.Acquire
	for i := len(b.commands) - 1; i >= max(b.first, b.last[name]); i-- {
		if c := &b.commands[i]; c.acquires == acquires && len(c.calls)+len(calls) <= maxJoined {
			c.calls = append(c.calls, calls...)
			b.last[name] = i
			return
		}
	}
	if b.last == nil {
		b.last = map[string]int{}
	}
	b.last[name] = len(b.commands)
	b.commands = append(b.commands, command{calls, acquires})
}

// forget forgets the commands.
func (b *batcher) forget() {
	clear(b.commands)
	clear(b.last)
	b.commands, b.first = b.commands[:0], 0
}

// isBehind reports whether a call is to be sent right behind another one.
func (j *ScriptCall) isBehind(other *ScriptCall) bool {
	return j.behind != nil && j.behind == other.Round
}

// about is the name that a call of a joinable script is about, by the key of its record, and the script; nil: it is not to be joined.
func (j *ScriptCall) about() (name string, script *scripts.Script) {
	if !j.isScript() {
		return "", nil
	}
	keys := j.keys()
	if name = keys[0]; len(keys) > 3 {
		name = keys[3]
	}
	return name, joinable(j.Args[1])
}

// args are the whole command.
func (c *command) args() []string {
	if len(c.calls) == 1 {
		return c.calls[0].Args
	}
	args := beginning(scripts.Calls, c.calls)
	for i := range c.calls {
		j, keys := &c.calls[i], 0
		if i == 0 || !j.isBehind(&c.calls[i-1]) {
			keys = j.keysOfItsOwn()
		}
		args = append(args, joinable(j.Args[1]).Name, strconv.Itoa(keys), strconv.Itoa(len(j.own())))
		args = append(args, j.own()...)
	}
	return args
}

// beginning is how a command begins that does what several calls do: the script that does, their keys, that of the node once, and the
// arguments that all have. One that is behind another has the same keys.
func beginning(s *scripts.Script, calls []ScriptCall) []string {
	n := 0
	for i := range calls {
		n += len(calls[i].Args)
	}
	args := append(make([]string, 0, n), "EVALSHA", s.SHA1, "")
	for i := range calls {
		switch keys := calls[i].keys(); {
		case i == 0:
			args = append(args, keys...)
		case !calls[i].isBehind(&calls[i-1]):
			args = append(append(args, keys[:2]...), keys[3:]...)
		}
	}
	args[2] = strconv.Itoa(len(args) - 3)
	return append(args, calls[0].Args[3+len(calls[0].keys()):][:4]...)
}

// keys are those of a call of a script that is about a lock.
func (j *ScriptCall) keys() []string {
	if j.Args[2] == "4" {
		return j.Args[3:7]
	}
	return j.Args[3:6]
}

// keysOfItsOwn is how many keys it has beside that of the node.
func (j *ScriptCall) keysOfItsOwn() int { return len(j.keys()) - 1 }

// own are the arguments of such a call that are its script's own.
func (j *ScriptCall) own() []string { return j.Args[ownArgs-3+len(j.keys()):] }

// votes reads the vote on each call of a command.
func (c *command) votes(res rueidis.RedisResult) []vote.Vote {
	if len(c.calls) == 1 {
		return []vote.Vote{vote.OfResult(res, c.calls[0].Parse)}
	}
	m, err := res.ToArray()
	if err == nil && len(m) != len(c.calls) {
		err = fmt.Errorf("not a reply of this script: %d values where %d were expected", len(m), len(c.calls))
	}
	if err != nil {
		return slices.Repeat([]vote.Vote{{Err: err}}, len(c.calls))
	}
	votes := make([]vote.Vote, len(m))
	for i := range m {
		votes[i] = vote.Of(m[i], c.calls[i].Parse)
	}
	return votes
}
