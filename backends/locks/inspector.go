package locks

import (
	"context"
	"errors"
	"fmt"
)

var errNoInspector = errors.New("this lock store cannot be inspected")

// Inspect asks every node who has a name. It never guesses: if the answers do not decide it, because too few
// nodes voted or because the silent ones could tip the count, the error is a *QuorumError, and the Inspection
// holds the answers there are.
func (s *Service) Inspect(ctx context.Context, k Key) (Inspection, error) {
	if s.inspector == nil {
		return Inspection{}, errNoInspector
	}
	return s.inspector.Inspect(ctx, k)
}

// List returns the names that are held, a part at a time, like SCAN. A name that is held from the first call to
// the last is reported; one that is held for a part of that time may be; one may be reported twice if a node
// fails meanwhile. A cursor works at every proxy that names the nodes in the same order. A lock that a quorum
// has is on at least one of any N-Q+1 nodes, so List scans that many, one after the other, whichever of them
// answer. An error is a *CursorError, a *QuorumError, or that of ctx.
func (s *Service) List(ctx context.Context, r ListRequest) (Listing, error) {
	if s.inspector == nil {
		return Listing{}, errNoInspector
	}
	return s.inspector.List(ctx, r)
}

// Names goes through the names as List does, without asking who has them: that costs a
// quorum read of each, see Holdings. A name is one that some node has a record of: it is held, or
// was a moment ago, or somebody tries to get it. complete is false if r.Looks did not suffice to see
// all names. They come in no order, each once. Errors are those of List.
func (s *Service) Names(ctx context.Context, r NamesRequest) (names []Key, complete bool, err error) {
	if s.inspector == nil {
		return nil, false, errNoInspector
	}
	return s.inspector.Names(ctx, r)
}

// Holdings asks a quorum who has each of these names. Those that nobody has are left out.
// The error is a *QuorumError or that of ctx.
func (s *Service) Holdings(ctx context.Context, names []Key) (held []Holding, err error) {
	if s.inspector == nil {
		return nil, errNoInspector
	}
	return s.inspector.Holdings(ctx, names)
}

// Force takes a name away from its holder, and returns what it had; held is false when nobody had it. Where there is no
// holder, it is taken from all who read it, and what one of them had is returned, with its Reader and their number. The
// owner is not asked: whatever it believes to protect is unprotected from now on, though its validity may
// still run. Its RENEW and UNLOCK get ErrLost, no renewal under way brings the lock back, and the next grant
// has a larger fence. The call is repeated to silent nodes until no lease can run any more. Errors are a
// *QuorumError or that of ctx; then the lock may be gone, or not yet: force it again.
func (s *Service) Force(ctx context.Context, k Key) (was Holding, held bool, err error) {
	if s.inspector == nil {
		return Holding{}, false, errNoInspector
	}
	was, held, err = s.inspector.Force(ctx, k, 0)
	return s.tellForced(k, was, held, err)
}

// ForceGrant is Force for the grant with this fence only. If a later or an earlier one has the name, the error
// is an *OtherGrantError and nothing is taken away.
func (s *Service) ForceGrant(ctx context.Context, k Key, fence int64) (was Holding, held bool, err error) {
	if fence <= 0 {
		return Holding{}, false, fmt.Errorf("%d is not a fence", fence)
	}
	if s.inspector == nil {
		return Holding{}, false, errNoInspector
	}
	was, held, err = s.inspector.Force(ctx, k, fence)
	return s.tellForced(k, was, held, err)
}

// OfReaders is, in place of a fence, that of every reader, and of nobody who has the name for itself.
const OfReaders = -1

// ForceReaders is Force for those who read the name only. If somebody has it for itself, the error is an
// *OtherGrantError and nothing is taken away.
func (s *Service) ForceReaders(ctx context.Context, k Key) (was Holding, held bool, err error) {
	if s.inspector == nil {
		return Holding{}, false, errNoInspector
	}
	was, held, err = s.inspector.Force(ctx, k, OfReaders)
	return s.tellForced(k, was, held, err)
}

// ForceEach has force take the name away from each of those who read it. It returns what the last one had from whom it was taken, from how many it
// was, and the *OtherGrantError of one that reads under another fence; any other error ends it.
func ForceEach(k Key, readers []ReadBy, force func(reading Key) (was Holding, held bool, err error)) (was Holding, taken int, later, err error) {
	for _, r := range readers {
		reading, held, err := force(Holder{k, r.Owner}.Reading().Key)
		switch other := (*OtherGrantError)(nil); {
		case errors.As(err, &other):
			later = err
		case err != nil:
			return was, taken, later, err
		case held:
			was, taken = reading, taken+1
		}
	}
	return was, taken, later, nil
}

// Nodes is what the last probe told of every node, in the order of the Store's options.
func (s *Service) Nodes() []NodeStatus {
	if s.inspector == nil {
		return nil
	}
	return s.inspector.Nodes()
}

// Check contacts every node and reports those that can never be what they are configured as: the same server
// twice, or a Redis Cluster. Nodes that do not answer are not reported; see Nodes.
func (s *Service) Check(ctx context.Context) error {
	if s.inspector == nil {
		return nil
	}
	return s.inspector.Check(ctx)
}

// Init declares all nodes new, so that they vote at once. The operator vouches that no lease and no fence matters
// which they may have forgotten. If a node does not answer, or some vote already, Init fails and changes nothing;
// if all vote already, there is nothing to do.
func (s *Service) Init(ctx context.Context) error {
	if s.inspector == nil {
		return errNoInspector
	}
	return s.inspector.Init(ctx)
}

// An OtherGrantError reports that the name is held under another fence.
type OtherGrantError struct{ Now Holding }

func (e *OtherGrantError) Error() string {
	return fmt.Sprintf("the lock has moved on: it is held under fence %d", e.Now.Fence)
}
