package locks

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

const tagLength = 16 // of a hold's id: the tag, a dot, and the attempt

// requestTag is a request id as the nodes know it: the same for the same name, owner and id only.
func requestTag(h holder, req string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %d %d %s%s%s", h.DB, len(h.Name), len(h.owner), h.Name, h.owner, req))
	return base32.StdEncoding.EncodeToString(sum[:])[:tagLength]
}

// newHold is the id of a new attempt's hold, with the tag of the request if it has an id.
func (s *Service) newHold(r LockRequest) string {
	if r.Req == "" {
		return s.opts.random.id()
	}
	return requestTag(holder{r.Key, r.Owner}, r.Req) + "." + s.opts.random.id()
}

// holdTag is the tag of a hold, empty if it has none.
func holdTag(id string) string {
	if len(id) > tagLength && id[tagLength] == '.' {
		return id[:tagLength]
	}
	return ""
}

// requestOf is the same for all holds that one request took.
func requestOf(id string) string { return cmp.Or(holdTag(id), id) }

// countHolds counts holds as nodes do: those of one request are one.
func countHolds(holds []string) int {
	n := len(holds)
	for i, id := range holds {
		if t := holdTag(id); t != "" && slices.ContainsFunc(holds[:i], hasTag(t)) {
			n--
		}
	}
	return n
}

// holdsOfRequest are the holds of the request with this tag, if there are any; else those of the
// request that took the last of these.
func holdsOfRequest(tag string, holds []string) []string {
	last := holds[len(holds)-1:]
	if tag == "" || !slices.ContainsFunc(holds, hasTag(tag)) {
		tag = holdTag(last[0])
	}
	if tag == "" {
		return last
	}
	var all []string
	for _, id := range holds {
		if holdTag(id) == tag {
			all = append(all, id)
		}
	}
	return all
}

func hasTag(tag string) func(id string) bool {
	return func(id string) bool { return holdTag(id) == tag }
}

// A requestKey is the same for the same request.
type requestKey struct {
	unlock bool
	Key
	owner, req string
}

// requests are those with an id that are under way here. A repeat waits until the first is decided, and is
// then an attempt of its own: what the nodes know of the first makes its reply the same. The zero value is
// ready; all methods are safe for concurrent use.
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

// first is nil for the first request, else closed when the first has ended.
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

// lockRequest is Lock, granted once for every Req.
func (s *Service) lockRequest(ctx context.Context, r LockRequest) (Decision, error) {
	end, err := s.beginRequest(ctx, &r)
	if end == nil {
		return Decision{}, err
	}
	defer end()
	return s.lockWait(ctx, r)
}

// beginRequest makes a LOCK the only one with its Req until end is called: every attempt has a hold of its
// own, so that undoing one takes nothing from another, but the nodes count those of one request as one hold,
// and give them back together. Without an end the decision is there: a refusal, or err.
func (s *Service) beginRequest(ctx context.Context, r *LockRequest) (end func(), err error) {
	if r.Req == "" {
		return func() {}, nil
	}
	began := s.now()
	end, err = s.requests.begin(ctx, requestKey{false, r.Key, r.Owner, r.Req}, r.Wait+splitLimit)
	if errors.Is(err, errDuplicateRequest) { // it waits, and would have been granted if anybody were
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	r.Wait = max(0, r.Wait-(s.now()-began))
	if h := (holder{r.Key, r.Owner}); s.grants.hasRequest(h, requestTag(h, r.Req)) {
		s.counters.repeats.Add(1)
	}
	return end, nil
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

// finishUnlock ends an UNLOCK that some nodes have done before, by a read: it gives back the same hold where
// that was not done, and repeats the answer. current is the owner's grant, if the read found one.
func (s *Service) finishUnlock(ctx context.Context, h holder, r UnlockRequest, current grant, votes []vote) (holdsLeft int, err error) {
	as, n := most(votes, func(v *vote) (string, bool) {
		if !didUnlock(v) {
			return "", false
		}
		return requestOf(v.read.unlock.hold), true
	})
	s.counters.repeats.Add(1)
	same := func(v *vote) bool { return didUnlock(v) && requestOf(v.read.unlock.hold) == as }
	left := qth(votes, s.quorum, same, func(v *vote) int { return v.read.unlock.left })
	done := votes[slices.IndexFunc(votes, func(v vote) bool { return same(&v) })].read.unlock
	if n == len(votes) {
		s.dropHolds(h, s.grants.requestHolds(h, done.hold)...)
		return left, nil
	}
	g := grant{fence: done.fence}
	if current.fence == done.fence {
		g.id = current.id
	}
	ids := []string{done.hold}
	if r.All {
		ids = append(ids, holdsUnder(votes, h.owner, g.fence)...)
	}
	votes, result, err := s.release(ctx, h, g, ids, nil, false, r.tag())
	if n < s.quorum && (err != nil || result != applied) {
		return 0, s.unlockError(h, result, votes, err)
	}
	s.dropHolds(h, s.grants.requestHolds(h, ids...)...)
	s.grants.invalidate(h)
	if n < s.quorum {
		left = s.holdsLeft(votes)
	}
	return s.surelyLeft(ctx, h, votes, left), nil
}

// didUnlock reports whether a node that was read has done the UNLOCK before.
func didUnlock(v *vote) bool { return v.read != nil && v.read.unlock.hold != "" }

// holdsUnder are the owner's holds under this fence on nodes that have not done the UNLOCK.
func holdsUnder(votes []vote, owner string, fence int64) []string {
	var others []vote
	for _, v := range votes {
		if v.fence == fence && !didUnlock(&v) {
			others = append(others, v)
		}
	}
	return everyHold(others, owner)
}

// tag is empty if the request has no id.
func (r *UnlockRequest) tag() string {
	if r.Req == "" {
		return ""
	}
	return requestTag(holder{r.Key, r.Owner}, r.Req)
}
