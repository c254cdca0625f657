package spec

import (
	"context"
	"sync/atomic"
	"time"
)

// A Discovery is an upstream's own table of commands, as far as it has told. It is safe for
// concurrent use.
type Discovery struct {
	known  atomic.Pointer[discovered] // nil: nothing is
	asking chan struct{}              // has room for the one that asks
}

// discovered is a table that the upstream has told. It does not change.
type discovered struct {
	table *Table
	on    Source // nil: its commands have changed since
	at    time.Time
}

// A Source is the connection that a table came on: once that has ended, the upstream may be
// another one.
type Source interface{ Alive() bool }

// rediscoverEvery is how often the upstream is asked again because of unknown commands: a
// module may have been loaded past the proxy.
const rediscoverEvery = time.Second

// NewDiscovery returns a Discovery of which nothing is known.
func NewDiscovery() *Discovery { return &Discovery{asking: make(chan struct{}, 1)} }

// Table is the upstream's table, as far as discovered, or else Builtin.
func (d *Discovery) Table() *Table {
	if k := d.known.Load(); k != nil {
		return k.table
	}
	return Builtin()
}

// Lookup is that of the upstream's table. It reports false if the upstream must be asked. It
// does not allocate.
func (d *Discovery) Lookup(args [][]byte) (c *Command, known bool) {
	return d.known.Load().lookup(args)
}

func (k *discovered) lookup(args [][]byte) (c *Command, known bool) {
	if k == nil || k.on == nil || !k.on.Alive() {
		return nil, false
	}
	c = k.table.Lookup(args)
	return c, c != nil || time.Since(k.at) <= rediscoverEvery
}

// Learn asks the upstream because of a command, unless another caller learns of it meanwhile.
// ask returns the reply to COMMAND, and where it came from; no reply: another time. The error is
// that of a reply which tells nothing.
func (d *Discovery) Learn(ctx context.Context, args [][]byte, ask func() (reply []byte, on Source)) error {
	select {
	case d.asking <- struct{}{}:
		defer func() { <-d.asking }()
	case <-ctx.Done():
		return nil
	}
	before := d.known.Load()
	if _, known := before.lookup(args); known {
		return nil
	}
	reply, on := ask()
	if reply == nil {
		return nil
	}
	t, err := Parse(reply)
	if err != nil {
		return err
	}
	d.known.CompareAndSwap(before, &discovered{table: t, on: on, at: time.Now()}) // unless forgotten meanwhile
	return nil
}

// Forget has the upstream asked again: its commands have changed.
func (d *Discovery) Forget() { d.known.Store(&discovered{table: d.Table()}) }
