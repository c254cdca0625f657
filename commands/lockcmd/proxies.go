package lockcmd

import "github.com/lockproxy/lockproxy/backends/resp"

// A Proxy is another proxy that uses the lock nodes, as NODES shows it.
type Proxy struct {
	ID, Name     string
	SameUpstream bool     // it is one of the same upstream, or may be
	Adopts       []string // its patterns of keys that are locks
	Conflict     string   // why these do not go with those here; empty: they do
	Warning      string   // what else differs; empty: nothing
}

// proxies appends the other proxies, as an array of maps.
func (c *ctl) proxies() []byte {
	var all []Proxy
	if c.verbs.opt.Proxies != nil {
		all = c.verbs.opt.Proxies()
	}
	b := resp.AppendArray(nil, len(all))
	for _, p := range all {
		adopts := resp.AppendArray(nil, len(p.Adopts))
		for _, pattern := range p.Adopts {
			adopts = resp.AppendBulkString(adopts, pattern)
		}
		b = fields{
			text("id", p.ID), text("proxy", p.Name), text("same-upstream", yesNo(p.SameUpstream)),
			{"adopts", adopts}, text("conflict", p.Conflict), text("warning", p.Warning),
		}.appendTo(b, c.proto)
	}
	return b
}
