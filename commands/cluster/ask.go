package cluster

import (
	"bytes"
	"context"
	"sync"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/backends/upstream"
	"github.com/lockproxy/lockproxy/commands/relay"
	"github.com/lockproxy/lockproxy/commands/spec"
)

// MaxAnswer is how large the reply to Ask may be, in bytes.
const MaxAnswer = 16 << 20

// Ask sends a command to the nodes that serve it, as a client but out of the order of its commands, and returns the
// reply. What only reads is asked of masters, too. cmd is what the upstream says of the command, rule where it
// goes. A reply that comes when ctx has ended is dropped.
func Ask(ctx context.Context, up *upstream.Upstream, as relay.Sender, cmd *spec.Command, rule *Rule, args [][]byte) ([]byte, error) {
	answer := &answer{}
	replies := relay.NewReplies(answer, relay.RepliesOptions{Limit: MaxAnswer})
	rt := New(up, replies, as.Hint)
	defer rt.End()
	defer rt.DropAll(as.ID.Proto)
	r := rt.Route(cmd, rule, args)
	var err error
	switch {
	case r.Kind == UnknownKeys:
		r, err = rt.AskKeys(ctx, as, args)
	case r.Kind == AnyNode:
		r = routeTo(rt.view.FirstMaster(), relay.NoSlot, false)
	case r.Read:
		r = routeTo(rt.view.Master(max(r.Slot, 0)), r.Slot, false)
	}
	if err == nil && r.Answer == "" {
		r, err = rt.Connect(ctx, as, r, args)
	}
	switch {
	case err != nil:
		return nil, err
	case r.Answer != "":
		return []byte(r.Answer), nil
	case !rt.Send(r, as, resp.AppendCommand(nil, args...), args):
		return nil, &upstream.DownError{Err: relay.ErrLost}
	}
	rt.Flush()
	if err := replies.WaitIdle(ctx); err != nil {
		return nil, err
	}
	replies.Flush()
	return answer.bytes(), nil
}

// An answer is the relay.Output of a reply that nobody is sent.
type answer struct {
	mu  sync.Mutex
	got []byte
}

func (a *answer) bytes() []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	return bytes.Clone(a.got)
}

// Write implements relay.Output.
func (a *answer) Write(p []byte) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.got = append(a.got, p...)
	return true
}

// Full implements relay.Output.
func (a *answer) Full() <-chan struct{} { return nil }

// Close implements relay.Output.
func (a *answer) Close() {}

// Abort implements relay.Output.
func (a *answer) Abort() {}
