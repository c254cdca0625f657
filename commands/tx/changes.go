package tx

import (
	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/backends/upstream"
	"github.com/lockproxy/lockproxy/commands/clients"
)

// Changes are to what is known of a client; nil and zero fields change nothing.
type Changes struct {
	ID            *upstream.Identity // AUTH, HELLO: all but the database
	DB            *int
	Name          []byte
	PinnedForLife bool // the connection has state from now on

	Watches bool // what was taken to be over, WATCH, is not

	Messages []*Messages // in order; from the first on replies are not counted
}

// Messages is a command of the SUBSCRIBE family, or MONITOR, as it was sent.
type Messages struct {
	Args    [][]byte
	Refused bool // in EXEC
}

// oneReply reports whether it has one reply, also if it is refused.
func (m *Messages) oneReply() bool {
	return len(m.Args) == 2 || resp.Is(m.Args[0], "MONITOR")
}

func (c *Changes) add(d Changes) {
	if d.ID != nil {
		c.ID = d.ID
	}
	if d.DB != nil {
		c.DB = d.DB
	}
	if d.Name != nil {
		c.Name = d.Name
	}
	c.PinnedForLife = c.PinnedForLife || d.PinnedForLife
	c.Messages = append(c.Messages, d.Messages...)
}

// AuthChanges are what an AUTH changes of a client that is id.
func AuthChanges(id upstream.Identity, args [][]byte) Changes {
	c := Changes{PinnedForLife: true}
	if became, ok := clients.ParseAuth(id, args); ok {
		c.ID = &became
	}
	return c
}

// HelloChanges are what a HELLO changes of a client that is id.
func HelloChanges(id upstream.Identity, args [][]byte) Changes {
	c := Changes{PinnedForLife: true}
	if h, ok := clients.ParseHello(args); ok {
		became := h.Identity(id)
		c.ID, c.Name = &became, h.Name
	}
	return c
}

// SelectChanges are what a SELECT changes of any client.
func SelectChanges(_ upstream.Identity, args [][]byte) Changes {
	c := Changes{PinnedForLife: true}
	if db, ok := clients.ParseSelect(args); ok {
		c.DB = &db
	}
	return c
}

// ClientChanges are what a CLIENT command changes of any client.
func ClientChanges(_ upstream.Identity, args [][]byte) (c Changes) {
	if name, ok := clients.ParseSetName(args); ok {
		c.Name = append([]byte{}, name...) // also of an empty name: nil changes nothing
	}
	c.PinnedForLife = !clients.NamesIDs(args) || resp.Is(args[1], "TRACKING")
	return c
}
