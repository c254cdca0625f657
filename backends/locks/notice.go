package locks

import (
	"context"
	"errors"
	"time"
)

// A Notice is a text that one proxy leaves at the lock nodes for the others. This package does not interpret it.
type Notice struct {
	ID   string // of the proxy: letters and digits
	Text string
}

// A PostRequest leaves a Notice at the lock nodes.
type PostRequest struct {
	Notice               // an empty Text removes the one with this ID
	Keep   time.Duration // how long it stays, unless it is posted again
	Unused bool          // write nothing to unused nodes (NodeUnused): the error is ErrUnused instead
}

// ErrUnused reports that nothing was written to lock nodes that nobody has used yet.
var ErrUnused = errors.New("the lock nodes are unused")

// A Noticeboard is a Store whose nodes keep notices. The method is that of Service.
type Noticeboard interface {
	Post(context.Context, PostRequest) ([]Notice, error)
}

// Post writes a Notice to every lock node, in place of an earlier one with its ID, and reads all notices of the node in
// the same step. So of two proxies that post at once, each at a majority, at least one reads the other's notice. If
// nodes have different notices of one ID, all are returned, each once. The error is a *QuorumError if fewer than a
// majority answered; their notices are returned all the same. Other errors are ErrUnused, ErrClosed and that of ctx.
func (s *Service) Post(ctx context.Context, r PostRequest) ([]Notice, error) {
	board, ok := s.store.(Noticeboard)
	if !ok {
		return nil, errors.New("this lock store keeps no notices")
	}
	return board.Post(ctx, r)
}
