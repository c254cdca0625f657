package acl

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/lockproxy/lockproxy/backends/upstream"
)

const (
	// fresh is how long a decision of the upstream counts.
	fresh = 5 * time.Second
	// maxDecisions bounds the cached decisions, of some 100 bytes each.
	maxDecisions = 8192
)

// A Cache has the upstream's decisions on who may lock what. It is safe for concurrent use.
type Cache struct {
	salt      [16]byte
	decisions *lru.Cache[[sha256.Size]byte, *decision]
	version   atomic.Int64 // grows when users are changed through this proxy
	paused    func() bool
}

// NewCache returns an empty Cache. paused reports whether the upstream holds clients up.
func NewCache(paused func() bool) *Cache {
	c := &Cache{paused: paused}
	rand.Read(c.salt[:]) // never fails; secrets are kept as salted hashes
	c.decisions, _ = lru.New[[sha256.Size]byte, *decision](maxDecisions)
	return c
}

// Invalidate has the upstream asked again about everybody.
func (c *Cache) Invalidate() { c.version.Add(1) }

// A decision is the upstream's answer to one question. It is safe for concurrent use.
type decision struct {
	mu      sync.Mutex
	known   bool
	refusal []byte // nil: allowed
	version int64  // Cache.version when it was asked for
	asked   time.Time
}

// due reports whether the caller is to ask again. Meanwhile the last decision counts for
// others, unless users have changed.
func (d *decision) due(version int64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.known && d.version == version && time.Since(d.asked) < fresh {
		return false
	}
	d.asked = time.Now()
	return true
}

func (d *decision) set(refusal []byte, version int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.known, d.refusal, d.version = true, refusal, version
}

// last is the last decision; not known: there was none yet.
func (d *decision) last() (refusal []byte, known bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.refusal, d.known
}

// decision is that on a client, or with a name on the client's right to lock it.
func (c *Cache) decision(a *Asker, name ...string) *decision {
	var room [256]byte
	b := append(room[:0], c.salt[:]...)
	for _, n := range []int64{a.Own, int64(a.Identity.DB), int64(len(name))} {
		b = binary.AppendVarint(b, n)
	}
	b = appendText(appendText(b, a.Identity.User), a.Identity.Secret)
	for _, text := range name {
		b = appendText(b, text)
	}
	key := sha256.Sum256(b)
	if d, ok := c.decisions.Get(key); ok {
		return d
	}
	d := &decision{}
	if before, ok, _ := c.decisions.PeekOrAdd(key, d); ok {
		return before
	}
	return d
}

func appendText(b []byte, text string) []byte {
	return append(binary.AppendVarint(b, int64(len(text))), text...)
}

// Unlimited reports whether the client may do everything, as far as the upstream has said: MayAsk and MayLock return nil.
func (c *Cache) Unlimited(ctx context.Context, a *Asker) bool {
	limits, known := c.consult(ctx, c.decision(a), a, a.limits)
	return !known || limits == nil
}

// MayLock returns nil if the upstream lets the client SET the key of that name.
func (c *Cache) MayLock(ctx context.Context, a *Asker, name string) error {
	return c.MayAsk(ctx, a, ProbeSet(name), name)
}

// MayAsk returns nil if the upstream does not refuse the client a question, a command without
// effect, for want of rights. about is what tells the question from others. The upstream is asked
// at most once in 5 s: whether the client may do everything, and if not the question.
//
// While the upstream does not answer its last decision counts, however old. A client that
// nothing is known of is let in, as by Admitted: locks are to work while the upstream
// does not. A limited one needs a decision on the question.
func (c *Cache) MayAsk(ctx context.Context, a *Asker, question []byte, about ...string) error {
	if c.Unlimited(ctx, a) {
		return nil
	}
	refusal, known := c.consult(ctx, c.decision(a, about...), a, func(ctx context.Context, conn *upstream.Conn) ([]byte, bool) {
		reply := a.Ask(ctx, conn, question)
		return Refusal(reply), reply != nil
	})
	switch {
	case !known:
		return &upstream.DownError{Err: errNoDecision}
	case refusal != nil:
		return &upstream.RefusedError{Reply: refusal}
	}
	return nil
}

// consult returns the last decision, after asking for a new one if that is due. A paused
// upstream is not asked: the question would hold up all who share the connection.
func (c *Cache) consult(ctx context.Context, d *decision, a *Asker, ask func(context.Context, *upstream.Conn) (refusal []byte, ok bool)) (refusal []byte, known bool) {
	version := c.version.Load()
	if !d.due(version) || c.paused() {
		return d.last()
	}
	wait := firstWait
	if _, known := d.last(); known {
		wait = knownWait
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	conn := a.Shared // which may have been let in when others no longer are
	if conn == nil || !conn.Alive() || conn.NeedsAuth() {
		var giveBack func()
		if conn, giveBack = a.Conn(ctx); conn == nil {
			return d.last()
		}
		defer giveBack()
	}
	if refusal, ok := ask(ctx, conn); ok {
		d.set(refusal, version)
	}
	return d.last()
}
