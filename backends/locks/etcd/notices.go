package etcd

import (
	"context"
	"errors"
	"strings"

	"github.com/lockproxy/lockproxy/backends/locks"
)

// Post implements locks.Noticeboard. An etcd is never unused: it has no data of clients among which a notice would be.
func (s *Store) Post(ctx context.Context, r locks.PostRequest) (all []locks.Notice, err error) {
	key := s.keys().notice(r.ID)
	op := requestOp{Delete: &deleteRequest{Key: key}}
	if r.Text != "" {
		lease, err := s.lease(ctx, s.limit(0), r.Keep)
		if err != nil {
			return nil, named(err, "LOCKCTL", "")
		}
		op = requestOp{Put: &putRequest{Key: key, Value: []byte(r.Text), Lease: lease}}
	}
	list := rangeRequest{Key: []byte(s.keys().notices()), End: after(s.keys().notices())}
	var t txnResponse
	if err := s.client.call(ctx, s.limit(0), "kv/txn", txnRequest{Success: []requestOp{op, {Range: &list}}}, &t); errors.Is(err, errNoLease) {
		return s.Post(ctx, r)
	} else if err != nil {
		return nil, named(err, "LOCKCTL", "")
	}
	found, err := t.at(1)
	if err != nil {
		return nil, err
	}
	for _, kv := range found.Kvs {
		all = append(all, locks.Notice{ID: strings.TrimPrefix(string(kv.Key), s.keys().notices()), Text: string(kv.Value)})
	}
	return all, nil
}
