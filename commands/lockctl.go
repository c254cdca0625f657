package commands

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/backends/upstream"
)

// Inspector says who holds what, and takes it away; *locks.Service is one.
type Inspector interface {
	Inspect(ctx context.Context, k locks.Key) (locks.Inspection, error)
	List(context.Context, locks.ListRequest) (locks.Listing, error)
	Waiters(k locks.Key) []locks.Waiter
	Force(ctx context.Context, k locks.Key) (was locks.Holding, held bool, err error)
}

const listUsage = "LOCKCTL LIST [MATCH glob] [COUNT n] [CURSOR c]"

var lockctlHelp = []string{
	"LOCKCTL <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
	"INFO <name>",
	"    Who holds a lock, since when and for how long still, as a majority of the lock",
	"    nodes agrees; null when nobody does.",
	"LIST [MATCH <glob>] [COUNT <n>] [CURSOR <cursor>]",
	"    The locks of this database that are held, a part at a time as with SCAN:",
	"    a cursor to go on with, 0 at the end, and the locks.",
	"WAITERS <name>",
	"    Who waits for a lock at this proxy, the next one first. Those who wait at other",
	"    proxies are not known here.",
	"WHY <name>",
	"    Explain in plain words who has a lock, what each node says, and what happens next.",
	"FORCE <name>",
	"    Take a lock away from its owner, who is told LOCKLOST at its next RENEW or UNLOCK.",
	"    For users who may run admin commands.",
	"NODES",
	"    The lock nodes, as they were seen a moment ago.",
	"HELP",
	"    Print this help.",
}

// lockctl runs LOCKCTL.
func (s *Session) lockctl(ctx context.Context, args [][]byte) ([]byte, error) {
	if len(args) < 2 {
		return nil, errors.New("ERR wrong number of arguments for 'lockctl' command; try LOCKCTL HELP")
	}
	about := map[string]func(context.Context, string) ([]byte, error){
		"INFO": s.lockInfo, "WAITERS": s.lockWaiters, "WHY": s.lockWhy, "FORCE": s.lockForce,
	}
	switch word := upper(args[1]); {
	case word == "HELP" && len(args) == 2:
		return appendHelp(nil), nil
	case s.d.opt.Inspector == nil:
		return nil, errors.New("ERR LOCKCTL is not served here")
	case word == "LIST":
		return s.lockList(ctx, args[2:])
	case word == "NODES" && len(args) == 2:
		return s.lockNodes(), nil
	case about[word] != nil && len(args) == 3:
		name, err := lockName(args[2])
		if err != nil {
			return nil, err
		}
		return about[word](ctx, name)
	case about[word] != nil, word == "NODES", word == "HELP":
		return nil, fmt.Errorf("ERR wrong number of arguments for 'lockctl|%s' command", lower(args[1]))
	}
	//lint:ignore ST1005 Redis ends this sentence with a full stop
	return nil, fmt.Errorf("ERR unknown subcommand '%s'. Try LOCKCTL HELP.", shorten(args[1]))
}

func appendHelp(b []byte) []byte {
	b = resp.AppendArray(b, len(lockctlHelp))
	for _, line := range lockctlHelp {
		b = resp.AppendSimple(b, line)
	}
	return b
}

func (s *Session) lockInfo(ctx context.Context, name string) ([]byte, error) {
	in, err := s.d.opt.Inspector.Inspect(ctx, locks.Key{DB: s.id.DB, Name: name})
	switch {
	case err != nil:
		return nil, err
	case !in.Held:
		return resp.AppendNull(nil, s.id.Proto), nil
	}
	f := append(s.holding(ctx, in.Holding), number("needed", in.Need), field{"nodes", s.nodeViews(ctx, in)})
	return f.appendTo(nil, s.id.Proto), nil
}

// holding is how a lock is shown to this client.
func (s *Session) holding(ctx context.Context, h locks.Holding) fields {
	return fields{
		text("name", h.Name),
		text("owner", s.shownOwner(ctx, h.Name, h.Owner)),
		number("fence", h.Fence),
		number("holds", h.Holds),
		number("remaining-ms", ceilMillis(h.Remaining)),
		number("held-ms", h.Held.Milliseconds()),
		text("info", h.Info),
		text("session", yesNo(h.Session)),
		number("waiters", h.Waiters),
		number("votes", h.Votes),
	}
}

// shownOwner is how an owner is shown to this client: its own always is.
func (s *Session) shownOwner(ctx context.Context, name, owner string) string {
	if owner != "" && s.implicit.owns(s.id.DB, name, owner) {
		return owner
	}
	return s.ownerForAdmins(ctx, owner)
}

// nodeViews is what each node says, as an array of maps.
func (s *Session) nodeViews(ctx context.Context, in locks.Inspection) []byte {
	b := resp.AppendArray(nil, len(in.Nodes))
	for _, v := range in.Nodes {
		f := fields{text("address", v.Address), text("says", nodeSays(v, in.Holding.Owner))}
		if v.Owner != "" {
			f = append(f, text("owner", s.shownOwner(ctx, in.Holding.Name, v.Owner)), number("fence", v.Fence), number("remaining-ms", ceilMillis(v.Remaining)))
		}
		b = f.appendTo(b, s.id.Proto)
	}
	return b
}

// nodeSays is a node's vote in a word: about the owner that the majority names.
func nodeSays(v locks.NodeView, owner string) string {
	switch {
	case v.State == locks.NodeDown, v.State == locks.NodeRefusing:
		return v.Standing()
	case v.Err != nil:
		return locks.WhySilent(v.Err)
	case v.Owner == "":
		return "free"
	case v.Owner == owner:
		return "held"
	}
	return "held by another owner"
}

func (s *Session) lockList(ctx context.Context, rest [][]byte) ([]byte, error) {
	r := locks.ListRequest{DB: s.id.DB}
	opts := options{rest: rest, usage: listUsage}
	for opts.next() {
		var err error
		switch opts.word {
		case "MATCH":
			r.Match, err = opts.bounded(0, locks.MaxName)
		case "CURSOR":
			r.Cursor, err = opts.bounded(1, 64)
		case "COUNT":
			r.Count, err = opts.count()
		default:
			err = opts.unknown()
		}
		if err != nil {
			return nil, err
		}
	}
	if opts.err != nil {
		return nil, opts.err
	}
	l, err := s.d.opt.Inspector.List(ctx, r)
	if err != nil {
		return nil, err
	}
	b := resp.AppendBulkString(resp.AppendArray(nil, 2), l.Cursor)
	b = resp.AppendArray(b, len(l.Held))
	for _, h := range l.Held {
		b = s.holding(ctx, h).appendTo(b, s.id.Proto)
	}
	return b, nil
}

// count is the argument of COUNT, a positive integer.
func (o *options) count() (int, error) {
	v, err := o.value()
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(string(v), 10, 32)
	if err != nil || n < 1 {
		return 0, errors.New("ERR COUNT must be a positive integer")
	}
	return int(n), nil
}

func (s *Session) lockWaiters(ctx context.Context, name string) ([]byte, error) {
	all := s.d.opt.Inspector.Waiters(locks.Key{DB: s.id.DB, Name: name})
	b := resp.AppendArray(nil, len(all))
	for i, w := range all {
		f := fields{
			number("position", i+1),
			number("waiting-ms", w.Waiting.Milliseconds()),
			number("gives-up-ms", ceilMillis(w.Left)),
			text("owner", s.shownOwner(ctx, name, w.Owner)),
			text("info", w.Info),
			text("client", s.ownerForAdmins(ctx, w.Client)),
		}
		b = f.appendTo(b, s.id.Proto)
	}
	return b, nil
}

func (s *Session) lockWhy(ctx context.Context, name string) ([]byte, error) {
	in, err := s.d.opt.Inspector.Inspect(ctx, locks.Key{DB: s.id.DB, Name: name})
	var quorum *locks.QuorumError
	if err != nil && !errors.As(err, &quorum) {
		return nil, err
	}
	e := explanation{
		Inspection: in, noQuorum: quorum != nil, waiters: s.d.opt.Inspector.Waiters(locks.Key{DB: s.id.DB, Name: name}),
		visible: func(owner string) string { return s.shownOwner(ctx, name, owner) },
	}
	lines := e.lines()
	b := resp.AppendArray(nil, len(lines))
	for _, line := range lines {
		b = resp.AppendBulkString(b, line)
	}
	return b, nil
}

func (s *Session) lockForce(ctx context.Context, name string) ([]byte, error) {
	admin, err := s.isAdmin(ctx)
	switch {
	case err != nil:
		return nil, err
	case !admin:
		return nil, errNoForce
	}
	if err := s.mayLock(ctx, name); err != nil {
		return nil, err
	}
	was, held, err := s.d.opt.Inspector.Force(ctx, locks.Key{DB: s.id.DB, Name: name})
	switch {
	case err != nil:
		return nil, err
	case !held:
		return resp.AppendNull(nil, s.id.Proto), nil
	}
	about := lockEvent{verb: "LOCKCTL", db: s.id.DB, name: name, owner: was.Owner, fence: was.Fence}
	s.d.opt.Log.LogAttrs(ctx, slog.LevelWarn, "lock forced",
		slices.Concat(s.About(), about.attrs(), []slog.Attr{slog.String("info", Brief(was.Info))})...)
	return s.holding(ctx, was).appendTo(nil, s.id.Proto), nil
}

func (s *Session) lockNodes() []byte {
	all := s.d.opt.Nodes()
	voting := 0
	nodes := resp.AppendArray(nil, len(all))
	for _, n := range all {
		if n.Ready() {
			voting++
		}
		f := fields{
			text("address", n.Address),
			text("kind", nodeKind(n)),
			text("up", yesNo(n.Up)),
			text("state", n.Brief()),
			number("state-ms", sinceMillis(n.Since)),
			number("quarantine-ms", ceilMillis(n.Left)),
			text("error", locks.WhySilent(n.Err)),
			text("run-id", n.RunID),
			number("largest-fence", n.Largest),
			number("answered-in-us", n.Took.Microseconds()),
			number("queued", n.Queued),
		}
		nodes = f.appendTo(nodes, s.id.Proto)
	}
	f := fields{
		number("voting", voting),
		number("needed", len(all)/2+1),
		text("hint", nodesHint(len(all))),
		{"nodes", nodes},
	}
	return f.appendTo(nil, s.id.Proto)
}

// sinceMillis is how long ago a time was; 0 if it is zero.
func sinceMillis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return max(0, time.Since(t).Milliseconds())
}

func nodeKind(n locks.NodeStatus) string {
	if n.Chosen {
		return "sentinel"
	}
	return "standalone"
}

// nodesHint says what a set of that many nodes cannot do.
func nodesHint(n int) string {
	switch {
	case n < 3:
		return "fewer than three lock nodes: no locks while one is down, and one that restarts without its data may grant a lease that still runs (see --restart-grace); use three or five"
	case n%2 == 0:
		return "an even number of lock nodes tolerates no more failures than one less"
	}
	return ""
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// fields are a map of the protocol, in order; flat in protocol 2.
type fields []field

// A field has its value as a reply.
type field struct {
	name  string
	value []byte
}

func text(name, value string) field { return field{name, resp.AppendBulkString(nil, value)} }

func number[T int | int64](name string, value T) field {
	return field{name, resp.AppendInt(nil, int64(value))}
}

func (f fields) appendTo(b []byte, proto int) []byte {
	b = resp.AppendMap(b, len(f), proto)
	for _, e := range f {
		b = append(resp.AppendBulkString(b, e.name), e.value...)
	}
	return b
}

// errNoForce is in the words of Redis 7.0.
var errNoForce = &upstream.RefusedError{Reply: []byte("-NOPERM this user has no permissions to run the 'lockctl|force' command\r\n")}
