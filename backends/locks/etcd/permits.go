package etcd

import (
	"strconv"
	"strings"

	"github.com/lockproxy/lockproxy/backends/locks"
)

// A permit is a reader's lock with a seat, of which there are as many as there may be permits. The seat is a key beside that of the lock: both have one
// value and one lease, and whatever writes or removes one does so with the other in the same transaction. So a seat that is there has an owner, and a
// transaction that takes one is done only if it is as it was decided on. Who takes it from one that has ended removes the lock of
// that one as well, so that no renewal brings it back.

// seatKey is what the cache keeps a seat under. No database is negative.
func seatKey(k locks.Key, seat int) locks.Key {
	return locks.Key{DB: ^k.DB, Name: k.Name, Reader: strconv.Itoa(seat)}
}

// seatsPart is the part of a read that shows which seats of a name are taken, and by whom.
func (s *Store) seatsPart(whole locks.Key) part {
	prefix := s.keys().seats(whole)
	return part{rangeRequest{Key: []byte(prefix), End: after(prefix)}, func(v *view, found *rangeResponse, at int64) error {
		v.beside.seats = map[int]*view{}
		for i := range found.Kvs {
			kv := &found.Kvs[i]
			seat, err := strconv.Atoi(strings.TrimPrefix(string(kv.Key), prefix))
			if err == nil {
				v.beside.seats[seat], err = s.viewOf(seatKey(whole, seat), kv, at)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}}
}

// sit gives a new grant a seat, or stores the refusal. The owner keeps the one that it has. What is not known of the seats is guessed.
func (a *acquisition) sit(v *view, w *write) bool {
	if v.rec != nil && v.rec.Seat > 0 && v.rec.Seat <= a.Permits {
		w.rec.Seat = v.rec.Seat
		return true
	}
	var first, gone *view // of those that are taken: the one that lapses first, and one that has
	at := 0               // its seat
	for i := range a.Permits {
		seat := (a.guess+i)%a.Permits + 1
		x := v.beside.seats[seat]
		switch {
		case x == nil:
			w.rec.Seat, w.taken = seat, &view{}
			return true
		case len(x.holds) == 0 && gone == nil:
			gone, at = x, seat
		case len(x.holds) > 0 && (first == nil || x.remaining() < first.remaining()):
			first = x
		}
	}
	if gone == nil {
		a.decision = locks.Decision{Holder: string(first.rec.Owner), Remaining: first.remaining(), Why: locks.Permits}
		return false
	}
	w.rec.Seat, w.taken = at, gone
	return true
}

// takeSeat has a transaction do nothing if the seat that it takes is not as it was.
func (s *Store) takeSeat(x *nameChange, t *txnRequest) {
	k, whole, w := s.keys(), x.q.key.Whole(), x.w
	t.Compare = append(t.Compare, modIs(k.seat(whole, w.rec.Seat), w.taken.mod))
	if w.taken.rec != nil && string(w.taken.rec.Owner) != x.q.owner {
		gone := locks.Holder{Key: whole, Owner: string(w.taken.rec.Owner)}.Reading().Key
		t.remove(k.lock(gone), nil)
		w.ended = append(w.ended, gone)
	}
}

// putSeat has a transaction write or remove the seat with the lock.
func (s *Store) putSeat(x *nameChange, t *txnRequest, lock *putRequest) {
	had, has := seatOf(x.v.rec), seatOf(x.w.rec)
	if has != 0 {
		t.Success = append(t.Success, requestOp{Put: &putRequest{Key: s.keys().seat(x.q.key, has), Value: lock.Value, Lease: lock.Lease}})
	}
	if had != 0 && had != has {
		t.remove(s.keys().seat(x.q.key, had), nil)
	}
}

func seatOf(r *record) int {
	if r == nil {
		return 0
	}
	return r.Seat
}

// noteSeat remembers which seats were taken and freed here.
func (s *Store) noteSeat(x *nameChange) {
	if had, has := seatOf(x.v.rec), seatOf(x.w.rec); had != has {
		s.seats.Took(x.q.key, has-1)
		s.seats.Freed(x.q.key, had-1)
	}
}
