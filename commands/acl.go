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

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/lockproxy/lockproxy/commands/relay"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/backends/upstream"
)

const (
	// aclFresh is how long a decision of the upstream counts.
	aclFresh = 5 * time.Second
	// maxDecisions bounds the cached decisions, of some 100 bytes each.
	maxDecisions = 8192
	// firstDecisionWait bounds how long a LOCK waits for the upstream's first decision; for
	// a later one it is admitWait.
	firstDecisionWait = 500 * time.Millisecond
)

// An aclCache has the upstream's decisions on who may lock what. It is safe for concurrent
// use.
type aclCache struct {
	salt      [16]byte
	decisions *lru.Cache[[sha256.Size]byte, *aclDecision]
	version   atomic.Int64 // grows when users are changed through this proxy
}

func newACLCache() *aclCache {
	a := &aclCache{}
	rand.Read(a.salt[:]) // never fails; secrets are kept as salted hashes
	a.decisions, _ = lru.New[[sha256.Size]byte, *aclDecision](maxDecisions)
	return a
}

// invalidate has the upstream asked again about everybody.
func (a *aclCache) invalidate() { a.version.Add(1) }

// An aclDecision is the upstream's answer to one question. It is safe for concurrent use.
type aclDecision struct {
	mu      sync.Mutex
	known   bool
	refusal []byte // nil: allowed
	version int64  // aclCache.version when it was asked for
	asked   time.Time
}

// due reports whether the caller is to ask again. Meanwhile the last decision counts for
// others, unless users have changed.
func (d *aclDecision) due(version int64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.known && d.version == version && time.Since(d.asked) < aclFresh {
		return false
	}
	d.asked = time.Now()
	return true
}

func (d *aclDecision) set(refusal []byte, version int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.known, d.refusal, d.version = true, refusal, version
}

// last is the last decision; not known: there was none yet.
func (d *aclDecision) last() (refusal []byte, known bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.refusal, d.known
}

// decision is that on a client, or with a name on the client's right to lock it. A client
// that is pinned for life may be another user there, whose rights others must not have.
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
	if d, ok := a.decisions.Get(key); ok {
		return d
	}
	d := &aclDecision{}
	if before, ok, _ := a.decisions.PeekOrAdd(key, d); ok {
		return before
	}
	return d
}

// mayLock returns nil if the upstream lets the client SET the key of that name. The
// upstream is asked at most once in aclFresh: whether the client may do everything, and if
// not about the name.
//
// While the upstream does not answer its last decision counts, however old. A client that
// nothing is known of is let in, as by checkAdmitted: locks are to work while the upstream
// does not. A limited one needs a decision on the name.
func (s *Session) mayLock(ctx context.Context, name string) error {
	if s.mode == onPassthrough && s.anonymous() && s.up.Pool().RequiresAuth() { // who it is only that connection knows
		return s.mayLockPassthrough(ctx, name)
	}
	limits, known := s.consult(ctx, s.d.acl.decision(s), s.askLimits)
	if !known || limits == nil {
		return nil
	}
	refusal, known := s.consult(ctx, s.d.acl.decision(s, name), func(ctx context.Context, c *upstream.Conn) ([]byte, bool) {
		reply := s.askOn(ctx, c, probeSet(name))
		return aclRefusal(reply), reply != nil
	})
	switch {
	case !known:
		return &upstream.DownError{Err: errNoDecision}
	case refusal != nil:
		return &upstream.RefusedError{Reply: refusal}
	}
	return nil
}

var errNoDecision = errors.New("it has not said whether this user may do that")

// probeSet is a SET that is always refused: for the user's rights if it may not write the
// key, since these are checked first, else for its syntax.
func probeSet(name string) []byte { return resp.AppendCommand(nil, "SET", name, "x", "NX", "XX") }

// aclRefusal is the reply if it refuses the user, else nil.
func aclRefusal(reply []byte) []byte {
	if resp.HasCode(reply, "NOPERM") || resp.HasCode(reply, "NOAUTH") {
		return slices.Clone(reply)
	}
	return nil
}

// consult returns the last decision, after asking for a new one if that is due. A paused
// upstream is not asked: the question would hold up all who share the connection.
func (s *Session) consult(ctx context.Context, d *aclDecision, ask func(context.Context, *upstream.Conn) (refusal []byte, ok bool)) (refusal []byte, known bool) {
	version := s.d.acl.version.Load()
	if !d.due(version) || s.d.isPaused() {
		return d.last()
	}
	wait := firstDecisionWait
	if _, known := d.last(); known {
		wait = admitWait
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	c := s.shared[upstream.MainClass] // which may have been let in when others no longer are
	if c == nil || !c.Alive() || c.NeedsAuth() || s.mustStayPinned() {
		var giveBack func()
		if c, giveBack = s.connToAsk(ctx); c == nil {
			return d.last()
		}
		defer giveBack()
	}
	if refusal, ok := ask(ctx, c); ok {
		d.set(refusal, version)
	}
	return d.last()
}

// askLimits asks whether the client may do everything; limits are not nil if it may not.
// Without ACLs, before Redis 6, everybody may.
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

// mayLockPassthrough is mayLock of a client that may have authenticated on its passthrough
// connection.
func (s *Session) mayLockPassthrough(ctx context.Context, name string) error {
	var refusal []byte
	answered := s.sync(ctx, probeSet(name), &relay.Barrier{Matches: func(reply []byte) bool {
		if len(reply) == 0 || reply[0] != '-' {
			return false
		}
		refusal = aclRefusal(reply)
		return true
	}})
	switch {
	case !answered:
		return &upstream.DownError{Err: relay.ErrLost}
	case refusal != nil:
		return &upstream.RefusedError{Reply: refusal}
	}
	return nil
}
