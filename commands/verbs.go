package commands

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/backends/upstream"
	"github.com/lockproxy/lockproxy/commands/lockcmd"
	"github.com/lockproxy/lockproxy/commands/relay"
)

// runVerb runs LOCK, RENEW, UNLOCK or LOCKCTL, and replies unless it is a LOCK that waits:
// then that is Pending.
func (s *Session) runVerb(ctx context.Context, q request) {
	if s.mode == onPassthrough && s.tx.In { // the upstream refuses it in its own words, and aborts the EXEC
		s.pass.replyMode.Note(q.args, true)
		s.enqueue(resp.AppendCommand(nil, q.args...))
		return
	}
	muted := s.takeReplyMode()
	s.replies.Mute(muted)
	defer s.replies.Mute(false)
	if !s.awaitReplies(ctx) {
		return
	}
	if err := s.checkAdmitted(ctx); err != nil {
		s.replyOrDisconnect(err)
		return
	}
	switch {
	case s.id.Proto == 2 && s.subscribed():
		s.replyErr(errors.New(subscriberModeError(q.args[0])))
	case q.row.verb != nil:
		s.replies.Local(s.verbReply(ctx, q.row, q.args).Now())
	default:
		if err := s.lock(ctx, q.args, muted); err != nil {
			s.replyErr(err)
		}
	}
}

// verbReply runs a verb other than LOCK.
func (s *Session) verbReply(ctx context.Context, c *command, args [][]byte) lockcmd.Reply {
	if s.locks.hostWatched {
		defer s.watchHost() // it may have been the last lock
	}
	reply, err := c.verb(s, ctx, args)
	if err != nil {
		return lockcmd.Reply{Bytes: appendErr([]byte{}, err)}
	}
	return reply
}

// admitWait bounds how long a LOCK waits for an upstream that has decided before: locks are
// to work while the upstream does not.
const admitWait = 100 * time.Millisecond

var errNoAuth = &upstream.RefusedError{Reply: []byte(upstream.NoAuth)}

// checkAdmitted returns an error for a client that the upstream would not let in. One with
// a connection there has been let in, and loses it when it no longer is; about others the
// upstream is asked. Its last answer counts while it does not answer.
func (s *Session) checkAdmitted(ctx context.Context) error {
	if s.authenticated() {
		s.conn().MarkUsed()
		return nil
	}
	pool := s.up.Pool()
	if s.mode == onPassthrough && s.anonymous() && pool.RequiresAuth() { // it may have authenticated there
		if s.passthroughNoAuth(ctx) {
			return errNoAuth
		}
		return nil
	}
	known := !s.anonymous() || pool.AllowsAnonymous()
	if known {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, admitWait)
		defer cancel()
	}
	c, err := pool.Shared(ctx, s.id, upstream.MainClass, s.hint)
	if err != nil {
		if refused := (*upstream.RefusedError)(nil); known && !errors.As(err, &refused) {
			return nil
		}
		return err
	}
	defer upstream.Return(c)
	if c.NeedsAuth() {
		return errNoAuth
	}
	return nil
}

// subscriberModeError is Redis's error to a client of RESP2 with subscriptions.
func subscriberModeError(name []byte) string {
	return fmt.Sprintf("ERR Can't execute '%s': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context", relay.Lower(name))
}

// lock begins a LOCK, and ends it unless it may wait. A muted one gets no reply.
func (s *Session) lock(ctx context.Context, args [][]byte, muted bool) error {
	a, err := s.d.limits.ParseLock(args)
	if err != nil {
		return err
	}
	if err := s.mayLock(ctx, a.Name); err != nil {
		return err
	}
	if a.DB, a.Client = s.id.DB, s.client.Addr; a.BindsToSession {
		if s.d.opt.Sessions == nil {
			return errors.New("ERR SESSION is not supported by this proxy")
		}
		if a.OnLoss == locks.OnLossPush && s.id.Proto < 3 {
			return errors.New("ERR ONLOSS PUSH needs RESP3, which has pushes: say HELLO 3 first")
		}
		a.Session = s.lockSession()
	}
	p := lockcmd.NewPending(a, muted)
	if a.Wait == 0 {
		p.Ask(s.clientCtx, s.d.opt.Locks)
		s.endLock(ctx, p)
		return nil
	}
	p.Prepare()
	s.locks.pending = p
	s.d.asking.Go(func() { p.AskAsync(s.clientCtx, s.d.draining, s.d.opt.Locks) })
	return nil
}

// endLock replies to a LOCK, and undoes a grant that the client cannot get.
func (s *Session) endLock(ctx context.Context, p *lockcmd.Pending) {
	reply, err := s.lockReply(ctx, p)
	s.logLock(p, err)
	if err != nil {
		s.replyErr(err)
	} else {
		s.replies.Local(reply)
	}
	if sent := s.replies.Flush(); p.Answer.Granted && (err != nil || !sent) {
		s.d.opt.Locks.Undo(p.Answer.Grant) // the client does not know of it
	}
	if p.BindsToSession {
		s.watchHost()
	}
}

// hasLeft reports whether the client has left, also if that has only just reached the kernel.
func (s *Session) hasLeft() bool {
	return s.clientCtx.Err() != nil || s.client.HungUp != nil && s.client.HungUp()
}

// errDraining is the reply to LOCKs that wait when the proxy ends.
var errDraining = &upstream.RefusedError{Reply: []byte("-DRAINING this proxy is shutting down and the lock was not taken; ask another proxy, or this one later\r\n")}

// lockReply is the reply to a LOCK. It returns an error for a grant that the client cannot
// get.
func (s *Session) lockReply(ctx context.Context, p *lockcmd.Pending) ([]byte, error) {
	g := p.Answer.Grant
	switch {
	case p.Err != nil && s.clientCtx.Err() != nil:
		// It may have closed only its sending half: the replies behind this one must
		// not take its place.
		return nil, errors.New("ERR LOCK was given up: the client closed its side of the connection")
	case s.d.draining.Err() != nil && (errors.Is(p.Err, context.Canceled) || errors.Is(p.Err, locks.ErrSessionEnded)):
		return nil, errDraining
	case p.Err != nil:
		return nil, p.Err
	case p.Answer.Granted && s.hasLeft():
		return nil, errors.New("ERR LOCK was undone: the client closed its side of the connection")
	case p.Answer.Granted && lockcmd.Remaining(g.Validity, p.AnsweredAt) == 0 && g.Validity > 0:
		return nil, errors.New("ERR LOCK was undone: the lease ended before the reply could be sent")
	case p.Answer.Granted:
		if p.Owner == "" {
			s.locks.implicit.Add(g)
		}
		return lockcmd.AppendGrant(nil, g, p.AnsweredAt), nil
	case p.RetryAfter:
		return lockcmd.AppendRefusal(nil, p.Answer, s.visible(ctx, p.Answer.Holder)), nil
	}
	return resp.AppendNull(nil, s.id.Proto), nil
}

// adminFresh is how long the upstream's answer to isAdmin is kept.
const adminFresh = 5 * time.Second

func (s *Session) lockctl(ctx context.Context, args [][]byte) (lockcmd.Reply, error) {
	ctl := s.ctl()
	reply, err := ctl.Run(ctx, args)
	return lockcmd.Reply{Bytes: reply}, err
}

// ctl answers the client's LOCKCTL.
func (s *Session) ctl() lockcmd.Ctl {
	return lockcmd.Ctl{
		Inspector: s.d.opt.Inspector, Nodes: s.d.opt.Nodes, DB: s.id.DB, Proto: s.id.Proto, Owners: &s.locks.implicit, Viewer: viewer{s},
	}
}

// visible returns another client's owner or address if this client may know it, else an
// empty string. Whoever knows an owner can unlock in its name, so only users who may run
// admin commands see it. The upstream is asked whether this one may run ACL or, before
// Redis 6, where everybody is an admin, another command for admins.
func (s *Session) visible(ctx context.Context, secret string) string {
	if time.Since(s.locks.adminCheckedAt) > adminFresh {
		s.locks.admin, _ = s.isAdmin(ctx)
		s.locks.adminCheckedAt = time.Now()
	}
	if !s.locks.admin {
		return ""
	}
	return secret
}

// errNoForce is worded as by Redis 7.0.
var errNoForce = &upstream.RefusedError{Reply: []byte("-NOPERM this user has no permissions to run the 'lockctl|force' command\r\n")}

// A viewer is a session as the lockcmd.Viewer of its LOCKCTL.
type viewer struct{ s *Session }

func (v viewer) Visible(ctx context.Context, secret string) string { return v.s.visible(ctx, secret) }

func (v viewer) MayForce(ctx context.Context, name string) error {
	admin, err := v.s.isAdmin(ctx)
	switch {
	case err != nil:
		return err
	case !admin:
		return errNoForce
	}
	return v.s.mayLock(ctx, name)
}

func (v viewer) Forced(was locks.Holding) {
	about := lockEvent{verb: "LOCKCTL", db: was.DB, name: was.Name, owner: was.Owner, fence: was.Fence}
	v.s.d.opt.Log.LogAttrs(context.Background(), slog.LevelWarn, "lock forced",
		slices.Concat(v.s.About(), about.attrs(), []slog.Attr{slog.String("info", Brief(was.Info))})...)
}

// isAdmin reports whether the upstream lets the client run admin commands, or why it could
// not be asked.
func (s *Session) isAdmin(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, firstDecisionWait)
	defer cancel()
	c, err := s.up.Pool().Shared(ctx, s.id, upstream.MainClass, s.hint)
	if errors.Is(err, context.DeadlineExceeded) {
		return false, &upstream.DownError{Err: errNoDecision}
	}
	if err != nil {
		return false, err
	}
	defer upstream.Return(c)
	reply := s.askOn(ctx, c, resp.AppendCommand(nil, "ACL", "DRYRUN", "default", "PING"))
	if reply != nil && isUnknownCommand(reply) { // there are no ACLs, or somebody has hidden them
		reply = s.askOn(ctx, c, resp.AppendCommand(nil, "LASTSAVE"))
	}
	if reply == nil {
		return false, &upstream.DownError{Err: errNoDecision}
	}
	text, refused := resp.Error(reply)
	return !refused || !strings.HasPrefix(text, "NOPERM") && !strings.HasPrefix(text, "NOAUTH"), nil
}

func (s *Session) renew(ctx context.Context, args [][]byte) (reply lockcmd.Reply, err error) {
	o, err := s.d.limits.ParseRenew(args)
	if err != nil {
		return reply, err
	}
	req := locks.RenewRequest{Key: locks.Key{DB: s.id.DB, Name: o.Name}, Owner: o.Owner, TTL: o.TTL, Fence: o.Fence}
	if req.Owner == "" {
		if req.Owner, req.Fence, err = s.implicitOwner(o, "RENEW"); err != nil {
			return reply, err
		}
	}
	began := time.Now()
	reply.Validity, err = s.d.opt.Locks.Renew(ctx, req)
	s.log(lockEvent{"RENEW", req.DB, req.Name, req.Owner, req.Fence, began, err}, "lock renewed", slog.Duration("validity", reply.Validity))
	return reply, err
}

func (s *Session) unlock(ctx context.Context, args [][]byte) (reply lockcmd.Reply, err error) {
	o, err := lockcmd.ParseUnlock(args)
	if err != nil {
		return reply, err
	}
	req := locks.UnlockRequest{Key: locks.Key{DB: s.id.DB, Name: o.Name}, Owner: o.Owner, Fence: o.Fence, All: o.All, Req: o.Req}
	if req.Owner == "" {
		if req.Owner, req.Fence, err = s.implicitOwner(o, "UNLOCK"); err != nil {
			return reply, err
		}
	}
	began := time.Now()
	left, err := s.d.opt.Locks.Unlock(ctx, req)
	s.log(lockEvent{"UNLOCK", req.DB, req.Name, req.Owner, req.Fence, began, err}, "lock given back", slog.Int("holds", left))
	if o.Owner == "" && (err == nil || errors.Is(err, locks.ErrLost)) {
		s.locks.implicit.Released(req.Key, req.Owner)
	}
	if err != nil {
		return reply, err
	}
	released := int64(0)
	if left == 0 {
		released = 1
	}
	return lockcmd.Reply{Bytes: resp.AppendInt(nil, released)}, nil
}

// implicitOwner finds who the connection is when a command names no owner.
func (s *Session) implicitOwner(o lockcmd.Release, verb string) (owner string, fence int64, err error) {
	if s.d.opt.RequireOwner {
		return "", 0, fmt.Errorf("ERR this proxy wants %s to name the owner", verb)
	}
	owner, fence, n := s.locks.implicit.Find(locks.Key{DB: s.id.DB, Name: o.Name}, o.Fence)
	switch n {
	case 0:
		return "", 0, fmt.Errorf("ERR this connection has not taken that lock without OWNER; %s must name the owner", verb)
	case 1:
		return owner, fence, nil
	}
	return "", 0, fmt.Errorf("ERR this connection has taken that lock %d times; %s must name the owner or the FENCE", n, verb)
}
