package adopt

import (
	"bytes"
	"context"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/commands/adopt/idiom"
	"github.com/lockproxy/lockproxy/commands/adopt/pattern"
)

// A Transaction is the lock that a client watches, and the commands on it that are queued after MULTI. It is about one lock:
// EXEC runs the queue as one operation. The zero Transaction is none. It belongs to the session's goroutine.
//
// The upstream gets MULTI and EXEC all the same, with nothing between: it says whether the client may run them, and whether
// a command was refused. A transaction has its keys either at the upstream or at the nodes, and commands on the other are
// refused: two places cannot be changed in one step.
type Transaction struct {
	watches bool
	watched locks.Key
	found   guess // what it was when it was watched

	queue []*Call
}

// noTransactions is why there are none in the mode both: the upstream is sent nothing of them.
const noTransactions = "transactions are not run in mode=both"

// maxQueued is how many commands on a lock a transaction may have.
const maxQueued = 128

// Active reports whether the client watches a lock, or has queued a command on one.
func (t *Transaction) Active() bool { return t.watches || len(t.queue) > 0 }

// Watches reports whether the client watches a lock.
func (t *Transaction) Watches() bool { return t.watches }

// Len is how many commands are queued.
func (t *Transaction) Len() int { return len(t.queue) }

// Forget is for UNWATCH, and the end of the transaction.
func (t *Transaction) Forget() { *t = Transaction{} }

// lock returns the lock of an Active transaction, and whether it is watched; if not, without its database.
func (t *Transaction) lock() (locks.Key, bool) {
	switch {
	case t.watches:
		return t.watched, true
	case len(t.queue) > 0:
		return locks.Key{Name: t.queue[0].Key()}, false
	}
	return locks.Key{}, false
}

// inTransaction refuses a command in a transaction.
func (a *Adoption) inTransaction(c Connection, name, key string, p *pattern.Pattern, why string) error {
	refused := &RefusedError{Command: name, Key: key, Why: why, Reason: InTransaction}
	if p != nil {
		refused.Pattern = p.Glob
	}
	a.noteRefusal(c, refused)
	return refused
}

// Watch runs WATCH of a lock. It reads the lock: EXEC changes the grant that was found, or nothing.
func (a *Adoption) Watch(ctx context.Context, conn Connection, t *Transaction, args [][]byte, keys Keys) error {
	name, p := a.lock(conn.Database(), args, keys)
	refused := func(reason Reason, why string) error {
		err := &RefusedError{Command: "WATCH", Key: name, Why: why, Pattern: p.Glob, Reason: reason}
		a.noteRefusal(conn, err)
		return err
	}
	key := locks.Key{DB: conn.Database(), Name: name}
	switch {
	case p.Mode == pattern.Both:
		return refused(InTransaction, noTransactions)
	case a.pattern(conn.Database(), name) == nil:
		return refused(NotForLocks, "WATCH of the key of a fence")
	case len(args) > 2:
		return refused(OtherKeys, "it has other keys as well")
	case t.watches && t.watched != key:
		return refused(InTransaction, "another lock is watched: "+brief(t.watched.Name))
	}
	if err := a.checkPeers(&Call{pattern: p, command: "WATCH", Call: idiom.Transaction(name, nil, 2)}); err != nil {
		a.noteRefusal(conn, err)
		return err
	}
	if err := conn.MayAsk(ctx, []string{"GET", name}); err != nil || t.watches { // if the lock is watched already, that goes on
		return err
	}
	found, err := a.read(ctx, conn.Burst().basis(), key)
	if err == nil {
		t.watches, t.watched, t.found = true, key, found
	}
	return err
}

// UpstreamTx is what a transaction has at the upstream.
type UpstreamTx struct {
	Queued, Watched bool
	Tracked         bool // the client may keep what it reads
}

// Queue keeps a command for EXEC. queued is false, without an error, if the command concerns no lock. An error is the reply
// to the client, and aborts the transaction.
func (a *Adoption) Queue(conn Connection, t *Transaction, args [][]byte, keys Keys, b UpstreamTx) (queued bool, err error) {
	call, err := a.newCall(conn, args, keys)
	if err != nil {
		a.noteRefusal(conn, err)
		return false, err
	}
	if call == nil {
		return false, nil
	}
	if call.flushes {
		return false, a.inTransaction(conn, call.command, call.pattern.Glob, call.pattern, "it is inside MULTI")
	}
	refused := func(why string) (bool, error) {
		return false, a.inTransaction(conn, call.command, call.Key(), call.pattern, why)
	}
	switch key, watched := t.lock(); {
	case call.pattern.Mode == pattern.Both:
		return refused(noTransactions)
	case bytes.HasPrefix(call.fault, wrongArity): // other faults are for EXEC to answer
		return false, faultError(call.fault)
	case b.Queued:
		return refused("it is inside MULTI with commands that are about no lock")
	case b.Watched:
		return refused("it is inside MULTI, and a key that is no lock is watched")
	case call.isFence:
		return refused("the fence of a lock is asked for inside MULTI")
	case call.parts != nil:
		return refused("it has other keys as well, inside MULTI")
	case t.Active() && key.Name != call.Key(), watched && key.DB != conn.Database():
		return refused("another lock is in the transaction: " + brief(key.Name))
	case len(t.queue) == maxQueued:
		return refused("the transaction has too many commands")
	case b.Tracked && (call.class == idiom.ReadOnly || call.follows):
		return false, a.RefusedTracked(conn, call)
	case watched: // EXEC compares the lock with what WATCH has found
		err = a.checkPeers(call)
	default:
		err = a.accept(call)
	}
	if err != nil {
		a.noteRefusal(conn, err)
		return false, err
	}
	t.queue = append(t.queue, call)
	return true, nil
}

// wrongArity begins the fault for which a command is not queued.
var wrongArity = []byte("-ERR wrong number of arguments ")

// A faultError is the error reply to a command that is wrong whatever the key is.
type faultError []byte

func (e faultError) Error() string { return strings.TrimSpace(string(e[1:])) }

// RefuseMixedTx refuses a command that concerns no lock, in a transaction with one.
func (a *Adoption) RefuseMixedTx(conn Connection, t *Transaction, args [][]byte) error {
	key, _ := t.lock()
	p := a.pattern(pattern.AnyDatabase, key.Name)
	return a.inTransaction(conn, strings.ToUpper(brief(string(args[0]))), key.Name, p, "it is in one transaction with that lock")
}

// Exec runs the queue as one call, unless the watched lock has changed: then the reply is that of an aborted EXEC. The
// upstream has run its EXEC before.
func (a *Adoption) Exec(ctx context.Context, conn Connection, t *Transaction) (Result, error) {
	began := time.Now()
	c := a.transactionCall(conn, t)
	for _, queued := range t.queue {
		if err := mayRun(ctx, conn, queued); err != nil {
			a.counters.end(c.class, idiom.Nothing, err)
			return Result{}, err
		}
	}
	var result Result
	var err error
	if t.watches {
		result, err = a.execWatched(ctx, conn, c, t)
	} else {
		result, err = a.decideOne(ctx, conn, c)
	}
	a.noteDecided(conn, c, result.did, err, time.Since(began))
	return result, err
}

// transactionCall returns the queue as one call.
func (a *Adoption) transactionCall(conn Connection, t *Transaction) *Call {
	key, _ := t.lock()
	c := &Call{command: "EXEC", class: idiom.ReadOnly}
	var calls []*idiom.Call
	for _, queued := range t.queue {
		calls = append(calls, queued.Call)
		if c.pattern = queued.pattern; c.class == idiom.ReadOnly {
			c.class = queued.class
		}
	}
	if c.pattern == nil {
		c.pattern = a.pattern(key.DB, key.Name)
	}
	c.Call = idiom.Transaction(key.Name, calls, conn.Protocol())
	return c
}

// execWatched applies the queue to exactly the grant that WATCH has found, or takes a lock that was free.
func (a *Adoption) execWatched(ctx context.Context, conn Connection, c *Call, t *Transaction) (Result, error) {
	aborted := Result{Reply: resp.AppendNull(nil, conn.Protocol())}
	key, g, now := t.watched, t.found, time.Now()
	out, err := c.Run(g.confirmedState(now), now)
	if err != nil {
		return Result{}, c.cannotRun(g.confirmedState(now).Kind, err)
	}
	if out.Op.Do == idiom.Nothing || out.TimeRead {
		there, err := a.read(ctx, newBurst().basis(), key)
		if err != nil {
			return Result{}, err
		}
		if there.owner != g.owner || there.fence != g.fence {
			return aborted, nil
		}
		g, now = there, time.Now()
		if out, err = c.Run(g.confirmedState(now), now); err != nil {
			return Result{}, c.cannotRun(g.confirmedState(now).Kind, err)
		}
	}
	switch out.Op.Do {
	case idiom.Nothing:
		a.signal(ctx, conn, out.Signals)
		return Result{Reply: out.Reply, sentUpstream: len(out.Signals) > 0}, nil
	case idiom.Enter, idiom.Leave: // they depend on the number of holds, which may have changed
		return Result{}, c.refused(NotForLocks, "it would "+out.Op.Do.String()+" a lock that is watched")
	}
	did := out.Op.Do
	d := decision{a: a, conn: conn, c: c, key: key, on: newBurst().basis(), lock: found{grant: g}}
	next, grant, err := d.do(ctx, &out)
	switch {
	case err != nil:
		return Result{}, err
	case next == nil:
		return aborted, nil
	}
	d.followCopy(ctx, out.Op, next)
	a.remember(key, *next)
	if did == idiom.Release {
		a.flights.hurry(key)
	}
	a.signal(ctx, conn, out.Signals)
	return Result{Reply: out.Reply, Taken: grant, did: did}, nil
}
