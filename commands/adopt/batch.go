package adopt

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/commands/adopt/idiom"
)

// batch makes a call of a script that renews several locks, each by itself: a part for each lock, and the same script for
// the keys that are none. nil: it is no such script.
func (a *Adoption) batch(c Connection, s *idiom.Script, words []string, n int) (*Call, error) {
	keys, args := words[3:3+n], words[3+n:]
	name := strings.ToUpper(words[0])
	dialect := a.opt.Dialect()
	shape := fmt.Sprint("batch ", s.SHA, " ", n, " ", len(args))
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
		if p == nil {
			others = append(others, i)
			all.list[i] = -1
			continue
		}
		if p.Mode == Both {
			return nil, &RefusedError{Command: name, Key: key, Why: "several locks in one script, which mode=both does not do", Pattern: p.Glob, Reason: OtherKeys, Script: s.SHA, Class: all.class}
		}
		all.list[i] = len(all.parts)
		all.parts = append(all.parts, &Call{Call: b.Call(i), pattern: p, command: name, class: all.class, onHash: true, script: s.SHA})
	}
	if len(all.parts) == 0 {
		return nil, nil
	}
	first := all.parts[0]
	all.Call, all.pattern = first.Call, first.pattern
	if len(others) > 0 {
		theirKeys, theirArgs, same := b.Only(others)
		if !same {
			return nil, all.refused(OtherKeys, "it has keys that are no locks, and which arguments are about them is not known")
		}
		all.rest = slices.Concat(words[:2], []string{strconv.Itoa(len(theirKeys))}, theirKeys, theirArgs)
	}
	return all, nil
}

// knownBatch reports whether scripts like this one were batches before.
func (a *Adoption) knownBatch(s *idiom.Script, n, args int) bool {
	return n > 1 && a.classes.Contains(fmt.Sprint("batch ", s.SHA, " ", n, " ", args))
}

// atOnce is how many parts of a batch are decided at the same time.
const atOnce = 16

// decideBatch decides the parts, and sends the rest behind them. Their replies are the elements of a list. The first
// error is that of the call; the other parts are done all the same.
func (a *Adoption) decideBatch(ctx context.Context, conn Connection, c *Call) (Result, error) {
	for _, part := range c.parts {
		if err := mayRun(ctx, conn, part); err != nil {
			return Result{}, err
		}
	}
	conn.Since() // the parts only read it
	one := &oneAtATime{Connection: conn}
	type decided struct {
		Result
		err error
	}
	of := make([]decided, len(c.parts))
	next := make(chan int, len(c.parts))
	for i := range c.parts {
		next <- i
	}
	close(next)
	var working sync.WaitGroup
	for range min(atOnce, len(c.parts)) {
		working.Go(func() {
			for i := range next {
				of[i].Result, of[i].err = a.decideOne(ctx, one, c.parts[i])
			}
		})
	}
	working.Wait()
	all := Result{}
	for _, d := range of {
		if d.err != nil {
			return Result{}, d.err
		}
		all.did = max(all.did, d.did)
	}
	var theirs [][]byte
	if c.rest != nil {
		reply, err := conn.Ask(ctx, c.rest)
		if err != nil {
			return Result{}, err
		}
		var isList bool
		if theirs, isList = resp.Elements(reply); !isList || len(theirs) != len(c.list)-len(c.parts) {
			return Result{Reply: reply, did: all.did, told: true}, nil // an error
		}
		all.told = true
	}
	all.Reply = resp.AppendArray(nil, len(c.list))
	for _, i := range c.list {
		switch {
		case i < 0:
			all.Reply, theirs = append(all.Reply, theirs[0]...), theirs[1:]
		case of[i].Reply[0] == '-': // it is no hash
			return Result{Reply: of[i].Reply, did: all.did, told: all.told}, nil
		default:
			all.Reply = append(all.Reply, of[i].Reply...)
		}
	}
	return all, nil
}

// A oneAtATime is a connection for several calls at once, which ask the upstream one after the other.
type oneAtATime struct {
	Connection
	mu sync.Mutex
}

func (o *oneAtATime) Ask(ctx context.Context, args []string) ([]byte, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.Connection.Ask(ctx, args)
}
