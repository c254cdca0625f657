package clients

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/backends/upstream"
)

// A Registry holds the clients of this proxy by their ids. The zero value is empty.
type Registry struct {
	// CommandName is the name by which CLIENT LIST shows a command, args being its name and
	// perhaps a subcommand; empty for what is no command. nil: none is known.
	CommandName func(args [][]byte) string

	mu   sync.Mutex
	byID map[int64]*Client
}

// Add adds a client. It must be removed when its session ends.
func (r *Registry) Add(c *Client) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byID == nil {
		r.byID = map[int64]*Client{}
	}
	r.byID[c.ID] = c
}

// Remove removes a client, if it is there.
func (r *Registry) Remove(c *Client) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.byID, c.ID)
}

// Count is the number of clients.
func (r *Registry) Count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.byID)
}

// Find returns the client with an id; nil if there is none.
func (r *Registry) Find(id int64) *Client {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.byID[id]
}

// All are the clients by id, which is the order in which they came.
func (r *Registry) All() []*Client {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.SortedFunc(maps.Values(r.byID), func(a, b *Client) int { return cmp.Compare(a.ID, b.ID) })
}

// byIDs are the clients with these ids, in their order; all clients for nil.
func (r *Registry) byIDs(ids []int64) (chosen []*Client) {
	if ids == nil {
		return r.All()
	}
	for _, id := range ids {
		if c := r.Find(id); c != nil {
			chosen = append(chosen, c)
		}
	}
	return chosen
}

// byUpstream are the clients that have a connection of their own to the node that at leads
// to, by its number there.
func (r *Registry) byUpstream(at *upstream.Conn) map[int64]*Client {
	byNumber := map[int64]*Client{}
	for _, c := range r.All() {
		if id := c.upstreamID(at); id != 0 {
			byNumber[id] = c
		}
	}
	return byNumber
}

// matching are the clients that k is about when self asks, by the entries of l.
func (r *Registry) matching(k *killFilter, self *Client, l *Listing) (matching []*Client) {
	now := time.Now()
	for _, c := range r.All() {
		if k.matches(l.anyEntryOf(c, now), c == self) {
			matching = append(matching, c)
		}
	}
	return matching
}
