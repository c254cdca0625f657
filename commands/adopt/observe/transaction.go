package observe

import (
	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/commands/adopt/idiom"
)

// A transaction is what a client has sent after MULTI. If adopted, it is about one lock.
type transaction struct {
	lock    *key   // nil: none so far
	others  bool   // it is about something else, too
	looked  bool   // the last command was on a lock
	endless string // why a lock that it has taken without an end is refused; empty: it has taken none, or has set an end since
}

// Why a transaction would be refused.
const (
	mixedTransaction = "it is inside MULTI with commands that are about no lock"
	twoLocks         = "another lock is in the transaction"
)

// inMulti is Command inside MULTI.
func (o *Observer) inMulti(c *Client, db, proto int, args [][]byte) {
	if resp.Is(args[0], "MULTI") || resp.Is(args[0], "WATCH") { // which change nothing there
		return
	}
	c.tx.looked = false
	o.command(c, InMulti, db, proto, args)
	switch {
	case resp.Is(args[0], "EXEC") || resp.Is(args[0], "DISCARD") || resp.Is(args[0], "RESET"):
		if c.tx.endless != "" && resp.Is(args[0], "EXEC") {
			o.mu.Lock()
			c.tx.lock.row.refuse(c.tx.endless)
			o.mu.Unlock()
		}
		c.tx, c.watched = transaction{}, ""
	case !c.tx.looked && !c.tx.others:
		c.tx.others = true
		if c.tx.lock != nil {
			o.mu.Lock()
			defer o.mu.Unlock()
			c.tx.lock.row.refuse(mixedTransaction)
		}
	}
}

// queued notes a command on a lock inside MULTI, where its reply is not seen.
func (t *Tap) queued(c *Client) {
	r := t.key.row
	t.o.unseen.InMulti++
	r.hazard(insideMulti, t.key.name)
	compares := c.watched == t.key.name && t.class != idiom.Unclear // EXEC compares the lock with what WATCH has found
	switch {
	case c.tx.others:
		r.refuse(mixedTransaction)
	case c.tx.lock != nil && c.tx.lock != t.key:
		r.refuse(twoLocks)
	case t.aim == toTake && t.ttl == idiom.Forever && t.verdict != "":
		c.tx.endless = t.verdict
	case t.verdict != "" && !(compares && t.verdict == t.uncompared):
		r.refuse(t.verdict)
	default:
		if r.allow(t.word); t.aim == toExtend && t.ttl != idiom.Forever && c.tx.endless != "" {
			c.tx.endless = ""
			r.allow("")
		}
	}
	c.tx.lock, c.tx.looked = t.key, true
}
