package commands

import (
	"context"

	"github.com/lockproxy/lockproxy/backends/upstream"
	"github.com/lockproxy/lockproxy/commands/acl"
)

// asker returns an Asker that asks the upstream as the client, out of the order of its commands. If the session must
// stay on its pinned connection it asks there: who the client is on that connection is not always known here.
func (s *Session) asker() acl.Asker {
	a := acl.Asker{Upstream: s.up, Identity: s.id, Hint: s.hint, Present: s.clientCtx, Shared: s.shared[upstream.MainClass]}
	if s.mustStayPinned() {
		a.Own, a.Shared = s.client.ID, nil
		if s.mode != onPassthrough {
			a.Pinned = s.pinned
		}
	}
	return a
}

// isUnknown reports whether only the passthrough connection knows who the client is: it may have authenticated there.
func (s *Session) isUnknown() bool {
	return s.mode == onPassthrough && s.anonymous() && s.up.Pool().RequiresAuth()
}

// checkAdmitted returns an error for a client that the upstream would not let in. A client with a connection has been
// let in, and loses the connection when that changes; for others the upstream is asked. While it does not answer, its
// last answer counts.
func (s *Session) checkAdmitted(ctx context.Context) error {
	switch {
	case s.authenticated():
		s.conn().MarkUsed()
		return nil
	case !s.isUnknown():
		a := s.asker()
		return a.Admitted(ctx)
	case s.passthroughNoAuth(ctx):
		return acl.ErrNoAuth
	}
	return nil
}

// mayLock returns nil if the upstream lets the client SET the key of that name.
func (s *Session) mayLock(ctx context.Context, name string) error {
	if s.unlimited(ctx) {
		return nil
	}
	return s.mayAsk(ctx, acl.ProbeSet(name), name)
}

// unlimited reports whether the client may do everything at the upstream, so that it need not be asked about single
// commands.
func (s *Session) unlimited(ctx context.Context) bool {
	if s.isUnknown() {
		return false
	}
	a := s.asker()
	return s.d.acl.Unlimited(ctx, &a)
}

// mayAsk returns nil if the client has the right to run question, a command without effect. about identifies the
// question in the cache of answers.
func (s *Session) mayAsk(ctx context.Context, question []byte, about ...string) error {
	if !s.isUnknown() {
		a := s.asker()
		return s.d.acl.MayAsk(ctx, &a, question, about...)
	}
	reply, err := s.askPassthrough(ctx, question)
	if refusal := acl.Refusal(reply); refusal != nil {
		err = &upstream.RefusedError{Reply: refusal}
	}
	return err
}
