package commands

import (
	"slices"
	"sync"

	"github.com/lockproxy/lockproxy/backends/upstream"
)

// A transaction is what a session knows of MULTI and EXEC on its own connection.
//
// What was sent says at once where commands must travel (in). What was answered
// says, when nothing is owed any more, how things are: an EXEC may be refused, and
// what was queued takes effect only if it was executed.
type transaction struct {
	in     bool    // as far as what was sent says
	unsure bool    // what was sent has not all been answered when last looked at
	queued changes // what EXEC will change if it is executed

	mu    sync.Mutex
	sure  bool    // in, as far as what was answered says
	after changes // what executed transactions have changed
}

// changes are to a session; nil and zero fields change nothing.
type changes struct {
	id    *upstream.Identity // AUTH, HELLO: all but the database
	db    *int
	name  []byte
	stays bool // the connection has state from now on
}

func (c *changes) add(d changes) {
	if d.id != nil {
		c.id = d.id
	}
	if d.db != nil {
		c.db = d.db
	}
	if d.name != nil {
		c.name = d.name
	}
	c.stays = c.stays || d.stays
}

// multi notes that a MULTI was sent, and returns what hears its answer.
func (t *transaction) multi() func([]byte) {
	t.in, t.unsure = true, true
	return func(begin []byte) {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.sure = t.sure || begin[0] == '+'
	}
}

// aborts are the errors of an EXEC after which there is no transaction any more: that
// of any Redis, and a Cluster's.
var aborts = []string{"EXECABORT", "MOVED", "ASK", "TRYAGAIN", "CROSSSLOT", "CLUSTERDOWN"}

// end notes that an EXEC or DISCARD was sent, and returns what hears its answer. One
// that is refused (NOPERM) ends nothing.
func (t *transaction) end() func([]byte) {
	queued := t.queued
	t.in, t.unsure, t.queued = false, true, changes{}
	return func(begin []byte) {
		t.mu.Lock()
		defer t.mu.Unlock()
		if begin[0] == '*' { // EXEC, executed
			t.after.add(queued)
		}
		if begin[0] != '-' || slices.ContainsFunc(aborts, func(word string) bool { return hasWord(begin, word) }) {
			t.sure = false
		}
	}
}

// settle is called when everything sent has been answered. It returns what has
// changed.
func (t *transaction) settle() changes {
	t.mu.Lock()
	defer t.mu.Unlock()
	done := t.after
	t.in, t.unsure, t.after = t.sure, false, changes{}
	return done
}

// resume is for a transaction that was begun anew on another connection.
func (t *transaction) resume(queued changes) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.in, t.unsure, t.sure, t.queued = true, true, true, queued
}

// forget is for a connection that is no more.
func (t *transaction) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.in, t.unsure, t.queued, t.sure, t.after = false, false, changes{}, false, changes{}
}
