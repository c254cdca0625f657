package etcd

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"time"
)

// A Look is what one member tells of itself when an operator asks. Nothing is changed for it.
type Look struct {
	Address string
	Err     error // it does not answer
	Denied  error // it does not let the user in, or to the keys
	Refused error // it would not do a LOCK; nil also if it was not asked

	Version                 string
	Cluster, Member, Leader string // ids; Leader is empty if it knows of none
	Learner                 bool
	Alarms                  []string // in etcd's words
	Size, Quota             int64    // of its database, in bytes; Quota is 0 if it does not tell
	Trips                   []time.Duration

	Damaged error // of the first member: about a key of a lock that cannot be read
}

const lookTrips = 10 // round trips that are measured

// Look asks every member how it is, and whether it would do a LOCK: a transaction that puts a key under a condition that never holds.
func (s *Store) Look(ctx context.Context) []Look {
	all := make([]Look, len(s.opts.Members))
	var asked sync.WaitGroup
	for i := range all {
		asked.Go(func() { s.look(ctx, i, &all[i]) })
	}
	asked.Go(func() { all[0].Damaged = s.damaged(ctx) })
	asked.Wait()
	return all
}

// damaged is about the first key of a lock that cannot be read; nil also if etcd does not answer.
func (s *Store) damaged(ctx context.Context) error {
	k := s.keys()
	all := k.prefix + "/"
	for from, more := []byte(all), true; more; {
		var found rangeResponse
		if s.client.call(ctx, s.limit(0), pathRange, rangeRequest{Key: from, End: after(all), Limit: listMost}, &found) != nil {
			return nil
		}
		for i := range found.Kvs {
			kv := &found.Kvs[i]
			_, _, ours := k.parseLock(kv.Key)
			kind, _, _ := strings.Cut(string(kv.Key[len(all):]), "/")
			if _, _, err := decode[record](kv); err != nil && (ours || kind == "last" || kind == "req" || kind == "seat") {
				return err
			}
			from = append(kv.Key, 0)
		}
		more = found.More
	}
	return nil
}

func (s *Store) look(ctx context.Context, i int, l *Look) {
	l.Address = s.opts.Members[i]
	var r statusResponse
	for range lookTrips {
		began := s.Now()
		if err := s.client.try(ctx, i, pathStatus, []byte("{}"), &r); err != nil {
			l.fail(err, &l.Err)
			return
		}
		l.Trips = append(l.Trips, s.Now()-began)
	}
	slices.Sort(l.Trips)
	l.Version, l.Cluster, l.Member, l.Learner, l.Alarms = r.Version, r.ClusterID, r.MemberID, r.Learner, r.Errors
	l.Size, l.Quota = r.Size, r.Quota
	if !r.hasLeader() {
		return
	}
	if l.Leader = r.Leader; l.Learner {
		return
	}
	key := s.keys().floor()
	never := txnRequest{
		Compare: []compare{modIs(key, math.MaxInt64)},
		Success: []requestOp{{Put: &putRequest{Key: key, Value: []byte{}}}},
		Failure: []requestOp{{Range: &rangeRequest{Key: key}}},
	}
	if err := s.client.try(ctx, i, "kv/txn", encode(never), &txnResponse{}); err != nil {
		l.fail(err, &l.Refused)
	}
}

// fail notes an error: of the user's, or else as what it is of.
func (l *Look) fail(err error, as *error) {
	if r := (*refusal)(nil); errors.As(err, &r) && (isAuth(r) || r.code == codePermission || strings.Contains(r.text, "user name is empty")) {
		as = &l.Denied
	}
	*as = err
}
