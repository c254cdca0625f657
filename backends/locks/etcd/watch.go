package etcd

import "github.com/lockproxy/lockproxy/backends/locks"

// A cutNote tells other proxies that the leases of a holder end earlier than they believe.
type cutNote struct {
	DB    int    `json:"db"`
	Name  []byte `json:"name"`
	Owner []byte `json:"owner"`
}

func newCut(h locks.Holder) *cutNote {
	return &cutNote{DB: h.DB, Name: []byte(h.Name), Owner: []byte(h.Owner)}
}
