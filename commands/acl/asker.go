// Package acl answers whether a client may do that: be served, lock a name, see what only
// admins see. The upstream decides, and is asked in the client's name.
//
//   - An [Asker] asks for one client, out of the order of the client's commands.
//   - A [Cache] has the decisions on who may lock what: those of one client count for all
//     that are the same user.
//
// No goroutine is started here.
package acl

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/backends/upstream"
)

const (
	// firstWait bounds how long a client waits for the upstream's first decision, knownWait
	// how long for one that it has made before: locks are to work while the upstream does not.
	firstWait = 500 * time.Millisecond
	knownWait = 100 * time.Millisecond
	// maxReply bounds a reply; that to COMMAND of Redis 8 with its modules has half a megabyte.
	maxReply = 16 << 20
)

// ErrNoAuth is the refusal of a client that must authenticate.
var ErrNoAuth = &upstream.RefusedError{Reply: []byte(upstream.NoAuth)}

var errNoDecision = errors.New("it has not said whether this user may do that")

// An Asker asks the upstream in a client's name, as the client is now. It belongs to the
// client's goroutine.
type Asker struct {
	Upstream *upstream.Upstream
	Identity upstream.Identity
	Hint     uint32
	Present  context.Context // ends when the client has left: then no reply is waited for

	// Own is the client's id if it stays on a connection of its own, on which it may be another
	// user, whose rights others must not have; else 0.
	Own    int64
	Pinned *upstream.Conn // that connection; nil: there is none, or it cannot be asked
	Shared *upstream.Conn // one that the client has, unless it stays on its own; may be nil or broken
}

// Conn is a connection for questions, until giveBack is called. It is nil if there is none.
func (a *Asker) Conn(ctx context.Context) (c *upstream.Conn, giveBack func()) {
	if a.Pinned != nil && a.Pinned.Alive() {
		return a.Pinned, func() {}
	}
	c, err := a.borrow(ctx)
	if err != nil {
		return nil, nil
	}
	return c, func() { upstream.Return(c) }
}

// borrow is a shared connection, to be returned.
func (a *Asker) borrow(ctx context.Context) (*upstream.Conn, error) {
	return a.Upstream.Pool().Shared(ctx, a.Identity, upstream.MainClass, a.Hint)
}

// Ask sends a command, as multibulk, and returns its reply; nil if none comes before ctx
// ends or the client leaves.
func (a *Asker) Ask(ctx context.Context, c *upstream.Conn, raw []byte) []byte {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(a.Present, cancel)()
	reply, _ := c.Ask(ctx, raw, maxReply)
	return reply
}

// Accepts reports whether the upstream does a command.
func (a *Asker) Accepts(ctx context.Context, raw []byte) bool {
	c, err := a.borrow(ctx)
	if err != nil {
		return false
	}
	defer upstream.Return(c)
	reply := a.Ask(ctx, c, raw)
	_, refused := resp.Error(reply)
	return reply != nil && !refused
}

// Admitted returns an error for a client that the upstream would not let in. One that it has
// let in before is let in while it does not answer.
func (a *Asker) Admitted(ctx context.Context) error {
	known := a.Identity.User != "" || a.Identity.Secret != "" || a.Upstream.Pool().AllowsAnonymous()
	if known {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, knownWait)
		defer cancel()
	}
	c, err := a.borrow(ctx)
	if err != nil {
		if refused := (*upstream.RefusedError)(nil); known && !errors.As(err, &refused) {
			return nil
		}
		return err
	}
	defer upstream.Return(c)
	if c.NeedsAuth() {
		return ErrNoAuth
	}
	return nil
}

// IsAdmin reports whether the upstream lets the client run admin commands, or why it could
// not be asked. It is asked whether the client may run ACL or, before Redis 6, where everybody
// is an admin, another command for admins.
func (a *Asker) IsAdmin(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, firstWait)
	defer cancel()
	c, err := a.borrow(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return false, &upstream.DownError{Err: errNoDecision}
	}
	if err != nil {
		return false, err
	}
	defer upstream.Return(c)
	reply := a.Ask(ctx, c, resp.AppendCommand(nil, "ACL", "DRYRUN", "default", "PING"))
	if reply != nil && isUnknownCommand(reply) { // there are no ACLs, or somebody has hidden them
		reply = a.Ask(ctx, c, resp.AppendCommand(nil, "LASTSAVE"))
	}
	if reply == nil {
		return false, &upstream.DownError{Err: errNoDecision}
	}
	text, refused := resp.Error(reply)
	return !refused || !strings.HasPrefix(text, "NOPERM") && !strings.HasPrefix(text, "NOAUTH"), nil
}

// limits asks whether the client may do everything; limits are not nil if it may not.
// Without ACLs, before Redis 6, everybody may.
func (a *Asker) limits(ctx context.Context, c *upstream.Conn) (limits []byte, ok bool) {
	who := a.Ask(ctx, c, resp.AppendCommand(nil, "ACL", "WHOAMI"))
	switch {
	case who == nil:
		return nil, false
	case isUnknownCommand(who): // it came with HELLO, so somebody has hidden it if that is there
		hello := a.Ask(ctx, c, resp.AppendCommand(nil, "HELLO"))
		if hello != nil && !isUnknownCommand(hello) {
			limits = who
		}
		return limits, hello != nil
	case who[0] != '$':
		return who, true
	}
	reply := a.Ask(ctx, c, resp.AppendCommand(nil, "ACL", "GETUSER", string(resp.Bulk(who))))
	if reply != nil && !isAllPowerful(reply) {
		limits = who
	}
	return limits, reply != nil
}

// ProbeSet is a SET that is always refused: for the user's rights if it may not write the
// key, since these are checked first, else for its syntax.
func ProbeSet(name string) []byte { return resp.AppendCommand(nil, "SET", name, "x", "NX", "XX") }

// Refusal is the reply if it refuses the user, else nil.
func Refusal(reply []byte) []byte {
	if resp.HasCode(reply, "NOPERM") || resp.HasCode(reply, "NOAUTH") {
		return slices.Clone(reply)
	}
	return nil
}

func isUnknownCommand(reply []byte) bool {
	text, refused := resp.Error(reply)
	return refused && strings.HasPrefix(strings.ToLower(text), "err unknown command")
}

// isAllPowerful reports whether a reply to ACL GETUSER shows a user who may run all commands
// with all keys.
func isAllPowerful(reply []byte) bool {
	fields, ok := resp.Elements(reply)
	if !ok {
		return false
	}
	var commands, keys bool
	for i := 0; i+1 < len(fields); i += 2 {
		switch value := string(fields[i+1]); string(resp.Bulk(fields[i])) {
		case "commands":
			commands = value == "$5\r\n+@all\r\n"
		case "keys":
			keys = value == "$2\r\n~*\r\n" || value == "*1\r\n$1\r\n*\r\n" // the latter before 7.0
		}
	}
	return commands && keys
}

// SetsPassword reports whether a CONFIG SET changes who is let in.
func SetsPassword(args [][]byte) bool {
	return slices.ContainsFunc(args[2:], func(a []byte) bool { return resp.Is(a, "REQUIREPASS") })
}
