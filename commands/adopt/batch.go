package adopt

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/commands/adopt/idiom"
	"github.com/lockproxy/lockproxy/commands/adopt/pattern"
	"github.com/lockproxy/lockproxy/commands/adopt/turns"
)

// newBatchCall makes a call of a script that renews several locks independently of each other: a part for each lock, and the
// same script for the keys that the upstream has (no locks, or locks in mode both). It returns nil if the script is of
// another kind.
func (a *Adoption) newBatchCall(c Connection, s *idiom.Script, words []string, n int) (*Call, error) {
	keys, args := words[3:3+n], words[3+n:]
	name := strings.ToUpper(words[0])
	dialect := a.opt.Dialect()
	shape := shape{script: s.SHA, keys: n, args: len(args), batch: true}
	_, known := a.classes.Get(shape)
	b, err := s.Batch(dialect, keys, args, c.Protocol(), strings.HasSuffix(name, "_RO"), known)
	if err != nil {
		return nil, nil
	}
	a.classes.Add(shape, verdict{class: idiom.ReentrantExtend, hash: true})
	all := &Call{command: name, class: idiom.ReentrantExtend, onHash: true, script: s.SHA, list: make([]int, n)}
	var others []int
	for i, key := range keys {
		p := a.pattern(c.Database(), key)
		if p == nil || p.Mode == pattern.Both {
			others = append(others, i)
			all.list[i] = -1
		}
		if p == nil {
			continue
		}
		all.list[i] = len(all.parts)
		all.parts = append(all.parts, &Call{Call: b.Call(i), pattern: p, command: name, class: all.class, onHash: true, script: s.SHA})
	}
	if len(all.parts) == 0 {
		return nil, nil
	}
	first := all.parts[0]
	all.Call, all.pattern = first.Call, first.pattern
	switch {
	case len(others) == n:
		all.rest = words
	case len(others) > 0:
		theirKeys, theirArgs, same := b.Only(others)
		if !same {
			return nil, all.refused(OtherKeys, "it has keys that the upstream has, and which arguments are about them is not known")
		}
		all.rest = slices.Concat(words[:2], []string{strconv.Itoa(len(theirKeys))}, theirKeys, theirArgs)
	}
	return all, nil
}

// knownBatch reports whether the script was a batch before, with as many keys and arguments.
func (a *Adoption) knownBatch(s *idiom.Script, n, args int) bool {
	return n > 1 && a.classes.Contains(shape{script: s.SHA, keys: n, args: args, batch: true})
}

// atOnce is how many parts of a batch are decided at the same time.
const atOnce = 16

// decideBatch decides the parts, and has the upstream run the rest: after the parts that the nodes alone decide, and before
// those in mode both. The reply is the list of their replies. The first error is that of the call; it does not stop the
// other parts.
func (a *Adoption) decideBatch(ctx context.Context, conn Connection, c *Call) (Result, error) {
	possible := make([]*idiom.Replies, len(c.parts)) // possible replies of the parts in mode both
	for i, part := range c.parts {
		if part.pattern.Mode != pattern.Both {
			continue
		}
		var err error
		if possible[i], err = a.possibleReplies(part); err != nil {
			return Result{}, err
		}
	}
	one := &oneAtATime{Connection: conn}
	of := make([]Result, len(c.parts))
	err := turns.Each(len(c.parts), atOnce, func(i int) (err error) {
		if possible[i] == nil {
			of[i], err = a.decideOne(ctx, one, c.parts[i])
		}
		return err
	})
	if err != nil {
		return Result{}, err
	}
	if c.rest == nil {
		return c.joined(of, nil), nil
	}
	began := time.Now()
	reply, err := conn.Ask(ctx, c.rest)
	if err != nil {
		return Result{}, err
	}
	theirs := make([][]byte, len(c.list)) // what the upstream has answered, by key
	elements, isList := resp.Elements(reply)
	for at, i := range c.list {
		if i >= 0 && possible[i] == nil {
			continue
		}
		if !isList || len(elements) == 0 { // an error
			return Result{Reply: reply, did: mostDone(of), sentUpstream: true}, nil
		}
		theirs[at], elements = elements[0], elements[1:]
	}
	err = turns.Each(len(c.list), atOnce, func(at int) (err error) {
		if i := c.list[at]; i >= 0 && possible[i] != nil {
			of[i], err = a.decideAfter(ctx, one, c.parts[i], possible[i], theirs[at], began)
		}
		return err
	})
	if err != nil {
		return Result{}, err
	}
	return c.joined(of, theirs), nil
}

func mostDone(of []Result) idiom.Do {
	return slices.MaxFunc(of, func(a, b Result) int { return cmp.Compare(a.did, b.did) }).did
}

// joined returns the list of replies: a part's for its lock, the upstream's for any other key. theirs is nil if the upstream
// was not asked.
func (c *Call) joined(of []Result, theirs [][]byte) Result {
	all := Result{Reply: resp.AppendArray(nil, len(c.list)), did: mostDone(of), sentUpstream: theirs != nil}
	for at, i := range c.list {
		switch {
		case i < 0:
			all.Reply = append(all.Reply, theirs[at]...)
		case len(of[i].Reply) > 0 && of[i].Reply[0] == '-': // it is no hash
			all.Reply = of[i].Reply
			return all
		default:
			all.Reply = append(all.Reply, of[i].Reply...)
		}
	}
	return all
}

// A oneAtATime lets concurrent calls share a connection: they ask the upstream one after the other.
type oneAtATime struct {
	Connection
	mu sync.Mutex
}

func (o *oneAtATime) Ask(ctx context.Context, args []string) ([]byte, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.Connection.Ask(ctx, args)
}
