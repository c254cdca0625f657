package faults

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// An instant is nanoseconds of the monotonic clock, which all processes of a machine share.
type instant int64

func now() instant {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // Linux always has it
	}
	return instant(ts.Nano())
}

func (i instant) add(d time.Duration) instant { return i + instant(d) }

// What clients do, and what is done to them.
const (
	opLock   = "lock"
	opRenew  = "renew"
	opUnlock = "unlock"
	opKeep   = "keep"  // a session's lock, listening until it is said to be lost
	opClose  = "close" // the connection of a session, by the client
	opKill   = "kill"  // the client, by the harness
	opForce  = "force" // somebody takes the name away
	opRead   = "read"  // of the set the lock protects
	opWrite  = "write" // of that set, one element larger
)

// How a command was answered.
const (
	granted  = "granted"
	held     = "held" // by another
	carried  = "carried"
	over     = "over"  // a request that was granted before and given back
	stale    = "stale" // a fence said so
	lost     = "lost"
	notOwner = "not owner"
	failed   = "failed" // any other error
)

// An Event is one command of one client. It is written twice: when it is about to be sent,
// and when it was answered. One that was not answered, because the connection broke or the
// client did not stay for it, has no End: what it asked for may happen at any time.
type Event struct {
	ID     int64 // of this client's log
	Client int
	Op     string
	Name   string `json:",omitempty"`
	Owner  string `json:",omitempty"` // of a LOCK that generates it only when answered
	Start  instant
	End    instant `json:",omitempty"`

	TTL     time.Duration `json:",omitempty"`
	Wait    time.Duration `json:",omitempty"`
	Session bool          `json:",omitempty"`
	Req     string        `json:",omitempty"`
	Fence   int64         `json:",omitempty"` // that the command names; of work, that of the grant
	First   bool          `json:",omitempty"` // UNLOCK: not a repetition
	All     bool          `json:",omitempty"`
	Takes   string        `json:",omitempty"` // LOCK: the owner whose lock it replaces, or may have; or anybody
	Open    bool          `json:",omitempty"` // LOCK, RENEW: the lease has no end; TTL is what is granted at once
	Blind   bool          `json:",omitempty"` // RENEW, UNLOCK: done to whoever has the lock, but not to one of LOCK
	Tx      bool          `json:",omitempty"` // it is EXEC
	Shared  bool          `json:",omitempty"` // of a reader
	Permits int           `json:",omitempty"` // LOCK: not 0: of a reader, and at most so many
	With    int           `json:",omitempty"` // not 0: one command for so many names, of which each has an event
	Key     string        `json:",omitempty"` // work: of the set
	Value   string        `json:",omitempty"` // work: the element
	Proxy   int           `json:",omitempty"`

	Reply    string        `json:",omitempty"`
	Granted  int64         `json:",omitempty"` // LOCK: the fence
	Validity time.Duration `json:",omitempty"` // LOCK, RENEW
	Holds    int           `json:",omitempty"` // LOCK
	Freed    bool          `json:",omitempty"` // UNLOCK: answered 1
	Holder   string        `json:",omitempty"` // LOCK that was refused
	Text     string        `json:",omitempty"` // of an error
}

// answered reports whether the client has seen the reply.
func (e *Event) answered() bool { return e.End != 0 }

// A journal is the log of one client. It is written through to the kernel, so that a
// client that is killed loses nothing of it. Several goroutines may use it.
type journal struct{ f *os.File }

func openJournal(path string) (*journal, error) {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	return &journal{f}, err
}

func (j *journal) write(e *Event) {
	line, err := json.Marshal(e)
	if err != nil {
		panic(err) // an Event has nothing that JSON has not
	}
	if _, err := j.f.Write(append(line, '\n')); err != nil {
		panic(err) // what is not recorded cannot be judged
	}
}

// A history is what is known of a run, in the order in which commands were sent.
type history []*Event

// read adds the events of a journal. A last line that was cut short is left out.
func (h *history) read(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	at := map[int64]int{}
	for r := bufio.NewReader(f); ; {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		e := &Event{}
		if err := json.Unmarshal(line, e); err != nil {
			return err
		}
		if i, ok := at[e.ID]; ok {
			(*h)[i] = e
		} else {
			at[e.ID] = len(*h)
			*h = append(*h, e)
		}
	}
}

// until is the history as it was then. Journals are read one after the other, while clients
// go on: without it an answer could be there and what made it possible not.
func (h history) until(at instant) (past history) {
	for _, e := range h {
		switch {
		case e.Start > at:
		case e.End > at:
			past = append(past, &Event{ID: e.ID, Client: e.Client, Op: e.Op, Name: e.Name, Owner: e.Owner, Start: e.Start,
				TTL: e.TTL, Wait: e.Wait, Session: e.Session, Req: e.Req, Fence: e.Fence, First: e.First, All: e.All, Takes: e.Takes,
				Open: e.Open, Blind: e.Blind, Tx: e.Tx, Shared: e.Shared, Permits: e.Permits, With: e.With, Key: e.Key, Value: e.Value})
		default:
			past = append(past, e)
		}
	}
	return past
}

func (h history) sort() {
	slices.SortStableFunc(h, func(a, b *Event) int { return int(min(max(a.Start-b.Start, -1), 1)) })
}
