package commands

import (
	"context"

	"github.com/lockproxy/lockproxy/backends/upstream"
	"github.com/lockproxy/lockproxy/commands/acl"
)

// asker asks the upstream in the client's name, out of the order of its commands: on the
// pinned connection if the session must stay there, since who the client is there is not
// always known.
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

// isUnknown reports whether who the client is only its passthrough connection knows, where it
// may have authenticated.
func (s *Session) isUnknown() bool {
	return s.mode == onPassthrough && s.anonymous() && s.up.Pool().RequiresAuth()
}

// checkAdmitted returns an error for a client that the upstream would not let in. One with
// a connection there has been let in, and loses it when it no longer is; about others the
// upstream is asked. Its last answer counts while it does not answer.
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

// unlimited reports whether the upstream lets the client do everything: it need not be asked anything.
func (s *Session) unlimited(ctx context.Context) bool {
	if s.isUnknown() {
		return false
	}
	a := s.asker()
	return s.d.acl.Unlimited(ctx, &a)
}

// mayAsk returns nil if the upstream does not refuse the client a question, a command without effect, for want of
// rights. about is what tells the question from others.
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
