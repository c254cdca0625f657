package commands

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/commands/relay"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/backends/upstream"
)

const (
	// aclFresh is how long the upstream's word on what a user may lock counts.
	aclFresh = 5 * time.Second
	// maxDecisions is how many of its words are kept, of 100 bytes or so.
	maxDecisions = 8192
	// firstDecisionWait bounds how long a LOCK waits for an upstream that has said nothing of
	// the matter yet; admitWait if it has.
	firstDecisionWait = 500 * time.Millisecond
)

// aclCache is what the upstream has said about who may lock what. It is safe for
// concurrent use.
type aclCache struct {
	salt      [16]byte
	decisions *lru.Cache[[sha256.Size]byte, *aclDecision]
	version   atomic.Int64 // of users, through this proxy
}

func newACLCache() *aclCache {
	a := &aclCache{}
	rand.Read(a.salt[:]) // never fails; secrets are kept as salted hashes
	a.decisions, _ = lru.New[[sha256.Size]byte, *aclDecision](maxDecisions)
	return a
}

// invalidate makes the proxy ask about everybody again.
func (a *aclCache) invalidate() { a.version.Add(1) }

// A word is the upstream's answer to one question. It is safe for concurrent use.
type aclDecision struct {
	mu      sync.Mutex
	known   bool
	refusal []byte // the refusal; nil: yes
	version int64  // access.changes when it was asked for
	asked   time.Time
}

// due says that this caller is to ask again. What was said before counts for others
// meanwhile, unless users have changed.
func (w *aclDecision) due(changes int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.known && w.version == changes && time.Since(w.asked) < aclFresh {
		return false
	}
	w.asked = time.Now()
	return true
}

func (w *aclDecision) set(no []byte, changes int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.known, w.refusal, w.version = true, no, changes
}

// last is what was said last; known is false if nothing ever was.
func (w *aclDecision) last() (no []byte, known bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.refusal, w.known
}

// decision is the word on a client, or with a name on that client's right to lock it. A
// client that has a connection of its own for good may be somebody there of whom others
// must not have the rights.
func (a *aclCache) decision(s *Session, name ...string) *aclDecision {
	own := int64(0)
	if s.mustStayPinned() {
		own = s.client.ID
	}
	b := a.salt[:len(a.salt):len(a.salt)]
	for _, n := range []int64{own, int64(s.id.DB), int64(len(name))} {
		b = binary.AppendVarint(b, n)
	}
	for _, text := range append([]string{s.id.User, s.id.Secret}, name...) {
		b = binary.AppendVarint(b, int64(len(text)))
		b = append(b, text...)
	}
	key := sha256.Sum256(b)
	if w, ok := a.decisions.Get(key); ok {
		return w
	}
	w := &aclDecision{}
	if before, ok, _ := a.decisions.PeekOrAdd(key, w); ok {
		return before
	}
	return w
}

// mayLock is nil if the upstream lets the client SET the key of that name. It is asked
// every accessFor at most, first whether the client may do everything, else about the
// name.
//
// While the upstream says nothing its last word counts, however old. A client of whom
// nothing is known is let in, as by admit: locks must be had while the upstream is not.
// One that is known to be limited needs a word on the name.
func (s *Session) mayLock(ctx context.Context, name string) error {
	if s.mode == onPassthrough && s.anonymous() && s.d.opt.Upstream.Pool().RequiresAuth() { // who it is only that connection knows
		return s.mayLockRaw(ctx, name)
	}
	limits, known := s.consult(ctx, s.d.acl.decision(s), s.askLimits)
	if !known || limits == nil {
		return nil
	}
	no, known := s.consult(ctx, s.d.acl.decision(s, name), func(ctx context.Context, c *upstream.Conn) ([]byte, bool) {
		reply := s.askOn(ctx, c, probeSet(name))
		return aclRefusal(reply), reply != nil
	})
	switch {
	case !known:
		return &upstream.DownError{Err: errNoDecision}
	case no != nil:
		return &upstream.RefusedError{Reply: no}
	}
	return nil
}

var errNoDecision = errors.New("it has not said whether this user may do that")

// probeSet is a command that is refused in any case, as the user's if that may not
// write the key: users' rights are looked at before a command's syntax.
func probeSet(name string) []byte { return resp.AppendCommand(nil, "SET", name, "x", "NX", "XX") }

// aclRefusal is the reply, if it says that the user may not.
func aclRefusal(reply []byte) []byte {
	if resp.HasCode(reply, "NOPERM") || resp.HasCode(reply, "NOAUTH") {
		return slices.Clone(reply)
	}
	return nil
}

// consult asks for a word if it is due, and returns what was said last. A paused upstream is
// not asked: whoever writes then holds up all who share the connection.
func (s *Session) consult(ctx context.Context, w *aclDecision, ask func(context.Context, *upstream.Conn) (no []byte, ok bool)) (no []byte, known bool) {
	changes := s.d.acl.version.Load()
	if !w.due(changes) || s.d.isPaused() {
		return w.last()
	}
	wait := firstDecisionWait
	if _, known := w.last(); known {
		wait = admitWait
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	c := s.shared[upstream.MainClass] // which may have been let in when others no longer are
	if c == nil || !c.Alive() || c.NeedsAuth() || s.mustStayPinned() {
		var giveBack func()
		if c, giveBack = s.connToAsk(ctx); c == nil {
			return w.last()
		}
		defer giveBack()
	}
	if no, ok := ask(ctx, c); ok {
		w.set(no, changes)
	}
	return w.last()
}

// askLimits asks whether there is anything that the client may not do. Without ACLs,
// before Redis 6, there is not.
func (s *Session) askLimits(ctx context.Context, c *upstream.Conn) (limits []byte, ok bool) {
	who := s.askOn(ctx, c, resp.AppendCommand(nil, "ACL", "WHOAMI"))
	switch {
	case who == nil:
		return nil, false
	case isUnknownCommand(who): // it came with HELLO, so somebody has hidden it if that is there
		hello := s.askOn(ctx, c, resp.AppendCommand(nil, "HELLO"))
		if hello != nil && !isUnknownCommand(hello) {
			limits = who
		}
		return limits, hello != nil
	case who[0] != '$':
		return who, true
	}
	reply := s.askOn(ctx, c, resp.AppendCommand(nil, "ACL", "GETUSER", string(resp.Bulk(who))))
	if reply != nil && !isAllPowerful(reply) {
		limits = who
	}
	return limits, reply != nil
}

func isUnknownCommand(reply []byte) bool {
	text, refused := resp.Error(reply)
	return refused && strings.HasPrefix(strings.ToLower(text), "err unknown command")
}

// isAllPowerful says that ACL GETUSER shows a user who may run all commands with all
// keys.
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

// mayLockRaw is mayLock of a client that may have authenticated on a connection whose
// replies are not counted.
func (s *Session) mayLockRaw(ctx context.Context, name string) error {
	var no []byte
	heard := s.sync(ctx, probeSet(name), &relay.Barrier{Matches: func(reply []byte) bool {
		if len(reply) == 0 || reply[0] != '-' {
			return false
		}
		no = aclRefusal(reply)
		return true
	}})
	switch {
	case !heard:
		return &upstream.DownError{Err: relay.ErrLost}
	case no != nil:
		return &upstream.RefusedError{Reply: no}
	}
	return nil
}
