package locks

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// duplicateWait is how long a repeat waits for the first beyond its own Wait.
const duplicateWait = time.Second

// A requestKey identifies a LOCK or UNLOCK that has a request id.
type requestKey struct {
	unlock bool
	Key
	owner, req string
}

// requests are the LOCKs and UNLOCKs with a request id that are under way here. A repeat waits until the first is
// decided, and is then an attempt of its own; the nodes remember the first, so its reply is the same. The zero
// value is ready; all methods are safe for concurrent use.
type requests struct {
	mu      sync.Mutex
	pending map[requestKey]chan struct{} // closed when the request is decided
}

// errDuplicateRequest reports that the same request is still under way.
var errDuplicateRequest = errors.New("the same request is under way")

// begin waits until no other request has this key, for at most timeout: then the error is errDuplicateRequest.
// end must be called when the request is decided.
func (r *requests) begin(ctx context.Context, k requestKey, timeout time.Duration) (end func(), err error) {
	t := time.NewTimer(timeout)
	defer t.Stop()
	for {
		first := r.first(k)
		if first == nil {
			return func() { r.end(k) }, nil
		}
		select {
		case <-first:
		case <-t.C:
			return nil, errDuplicateRequest
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// beginAll is begin for a LOCK of these names, one after the other.
func (r *requests) beginAll(ctx context.Context, names []Key, owner, req string, timeout time.Duration) (end func(), err error) {
	limit := time.Now().Add(timeout)
	var ends []func()
	end = func() {
		for _, end := range ends {
			end()
		}
	}
	for _, k := range names {
		ended, err := r.begin(ctx, requestKey{false, k, owner, req}, time.Until(limit))
		if err != nil {
			end()
			return nil, err
		}
		ends = append(ends, ended)
	}
	return end, nil
}

// first returns nil if no request with this key is under way, and notes this one. Else it returns a channel that is
// closed when the one under way has ended.
func (r *requests) first(k requestKey) chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if first := r.pending[k]; first != nil {
		return first
	}
	if r.pending == nil {
		r.pending = map[requestKey]chan struct{}{}
	}
	r.pending[k] = make(chan struct{})
	return nil
}

func (r *requests) end(k requestKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.pending[k])
	delete(r.pending, k)
}

// lockRequest is lockWait for one request of a Req at a time.
func (s *Service) lockRequest(ctx context.Context, r Attempt) (Decision, error) {
	end, refused, err := s.beginRequest(ctx, &r)
	if end == nil {
		return refused, err
	}
	defer end()
	return s.lockWait(ctx, r)
}

// beginRequest makes a LOCK the only one with its Req until end is called. Every attempt has a hold of its own, so
// that undoing one takes nothing from another; the nodes count the holds of one request as one, and give them back
// together. If end is nil, the answer is refused or err. A LOCK without Wait whose request stands in line already is
// told its place.
func (s *Service) beginRequest(ctx context.Context, r *Attempt) (end func(), refused Decision, err error) {
	if r.Req == "" {
		return func() {}, refused, nil
	}
	if r.Wait <= 0 {
		if place, waits := s.place(r); waits {
			return nil, place, nil
		}
	}
	if r.Queue != nil { // the same request may wait over another connection, without telling this one
		if place, waits := s.place(r); waits {
			r.Queue.Queued(place)
			r.Queue = nil
		}
	}
	began := s.store.Now()
	if timeout := r.Wait + duplicateWait; len(r.Others) == 0 {
		end, err = s.requests.begin(ctx, requestKey{false, r.Key, r.Owner, r.Req}, timeout)
	} else {
		end, err = s.requests.beginAll(ctx, r.sortedNames(), r.Owner, r.Req, timeout)
	}
	if errors.Is(err, errDuplicateRequest) { // the first still waits, so this one would have to wait as well
		return nil, refused, nil
	}
	if err != nil {
		return nil, refused, err
	}
	r.Wait = max(0, r.Wait-(s.store.Now()-began))
	if s.store.Repeated(Holder{r.Key, r.Owner}, r.Req) { // one for all names
		s.counters.repeats.Add(1)
	}
	return end, refused, nil
}

// place is the answer to a request that waits here: who has the lock, and how many stand before it; with several names, where it stands.
func (s *Service) place(r *Attempt) (refused Decision, waits bool) {
	line, ahead, known, waits := s.waiting.Place(r.lines(), r.Owner, r.Req)
	if waits {
		refused, _ = s.refusal(known) // an error is no decision: who has it is not known
		refused.Waiters = ahead
	}
	if len(r.Others) > 0 {
		refused.Of = line
	}
	return refused, waits
}

func checkReq(owner, req string) error {
	switch {
	case len(req) > MaxReq:
		return fmt.Errorf("the request id has %d bytes, more than %d", len(req), MaxReq)
	case req != "" && owner == "":
		return errors.New("a request id needs an owner: a generated one is another each time")
	}
	return nil
}
