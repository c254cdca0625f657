package locks

import (
	"context"
	"errors"
	"time"
)

// A Notice is what one proxy tells the others by way of the lock nodes. Nobody here reads it.
type Notice struct {
	ID   string // of the proxy: letters and digits
	Text string
}

// A PostRequest leaves a Notice at the lock nodes.
type PostRequest struct {
	Notice               // an empty Text takes the one with this ID away
	Keep   time.Duration // for how long, unless it is posted again
	Unused bool          // nodes that are unused (NodeUnused) stay so, and the error is ErrUnused
}

// ErrUnused reports that nothing was asked of lock nodes that nobody has used yet.
var ErrUnused = errors.New("the lock nodes are unused")

// A Noticeboard is a Store whose nodes keep notices. The method is that of Service.
type Noticeboard interface {
	Post(context.Context, PostRequest) ([]Notice, error)
}

// Post leaves a Notice at every lock node, in place of the one with its ID, and in the same step of each reads all that
// it has. So of two proxies that post at once, each at a majority, one reads the other's. Nodes may have different
// ones of an ID; each is returned once. The error is a *QuorumError if fewer than a majority did so; then what
// those had is returned all the same. Others are ErrUnused, ErrClosed and that of ctx.
func (s *Service) Post(ctx context.Context, r PostRequest) ([]Notice, error) {
	board, ok := s.store.(Noticeboard)
	if !ok {
		return nil, errors.New("the store of locks keeps no notices")
	}
	return board.Post(ctx, r)
}
