package etcd

import (
	"fmt"

	"github.com/lockproxy/lockproxy/backends/locks"
)

// A LOCK for several names is one transaction, which writes for each name what a LOCK of it alone writes. A transaction of etcd may have
// few conditions, so there is only one for each name: all names are read at one revision, and no key of the name may have been written
// since. A key that was removed meanwhile does not violate that condition. Therefore the transaction is marked as one on a free name is,
// and where the owner has the name already, the condition is that its key is the one that was read.

const (
	apartFor = 30 // names that are read, for which there are two conditions each: then other readers make no difference
	fewReqs  = 16 // requests of a name that one change of several notes to be over
)

// decideAll has each name decided. By the cache only an owner that has a name, or finds it free, decides anything.
func (a *acquiring) decideAll() (write bool, err error) {
	a.decision = nil
	over, refused := locks.Decision{Granted: true}, locks.Decision{}
	for _, one := range a.names {
		w, err := one.decide(one.v)
		switch b := &one.v.beside; {
		case err != nil:
			return false, err
		case w != nil && a.at == 0 && w.newcomer && (one.v.mod != 0 || b.intent.mod != 0 || b.writer != nil && b.writer.mod != 0):
			return false, nil
		case w != nil:
			one.w = w
			for tag := range w.reqs {
				if len(w.reqs) > fewReqs {
					delete(w.reqs, tag)
				}
			}
		case one.decision.Granted:
			over.Add(one.decision.Grant)
		case refused.Of.Name == "" || one.Key.Compare(refused.Of) < 0:
			refused = one.decision
			refused.Of = one.Key.Whole()
		}
	}
	switch n := len(over.Others) + 1; {
	case over.Grant.Name != "" && n < len(a.names):
		return false, fmt.Errorf("%w: this request was granted before, and some of its names were given back since", locks.ErrLost)
	case over.Grant.Name != "":
		a.decision = &over
	case refused.Of.Name != "":
		a.decision = &refused
	}
	return a.decision == nil, nil
}

// conditions are those of a change of several names.
func (s *Store) conditions(c *change) (all []compare) {
	k := s.keys()
	if tag := c.each[0].q.tag; tag != "" {
		group := k.request(tag[:groupDigits])
		all = append(all, noneSince(group, after(string(group)), c.at))
	}
	for _, x := range c.each {
		of, key := k.digits(x.q.key), modIs(k.lock(x.q.key), x.v.mod)
		switch {
		case !x.w.newcomer:
			all = append(all, key)
		case x.q.key.Reader != "" && len(c.each) <= apartFor:
			all = append(all, key, noneSince([]byte(of+string(isIntent)), []byte(of+endOfName), c.at))
		default:
			all = append(all, noneSince([]byte(of+string(isReader)), []byte(of+endOfName), c.at))
		}
	}
	return all
}
