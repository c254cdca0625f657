package lockcmd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/resp"
)

// An Inspector shows who holds which locks, and takes locks away; *locks.Service is one.
type Inspector interface {
	Inspect(ctx context.Context, k locks.Key) (locks.Inspection, error)
	List(context.Context, locks.ListRequest) (locks.Listing, error)
	Waiters(k locks.Key) []locks.Waiter
	Force(ctx context.Context, k locks.Key) (was locks.Holding, held bool, err error)
}

// A Reader says who has a name, as a quorum decides; *locks.Service is one.
type Reader interface {
	Read(context.Context, locks.Key) (locks.Reading, error)
}

const listUsage = "LOCKCTL LIST [MATCH glob] [COUNT n] [CURSOR c]"

var lockctlHelp = []string{
	"LOCKCTL <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
	"INFO <name>",
	"    Who holds or reads a lock, since when and for how long still, as a majority of the",
	"    lock nodes agrees; null when nobody does.",
	"LIST [MATCH <glob>] [COUNT <n>] [CURSOR <cursor>]",
	"    The locks of this database that are held or read, a part at a time as with SCAN:",
	"    a cursor to go on with, 0 at the end, and the locks.",
	"WAITERS <name>",
	"    Who waits for a lock at this proxy, the next one first. Those who wait at other",
	"    proxies are not known here.",
	"WHY <name>",
	"    Explain in plain words who has a lock, what each node says, and what happens next.",
	"FENCE <name> <value>",
	"    The fence of the grant that is there, if its value, field or owner is this one, or of",
	"    the owner of that name that reads it; else null. For users who may take the lock.",
	"FORCE <name>",
	"    Take a lock away from its owner, or else from all who share it. They are told",
	"    LOCKLOST at their next RENEW or UNLOCK.",
	"    For users who may run admin commands.",
	"NODES",
	"    The lock nodes, as they were seen a moment ago, and the other proxies that use them.",
	"ADOPT CHECK [WATCH <time>]",
	"    What is in the way of the next mode of adopted keys, in this database: proxies of",
	"    another mode, and locks that are at the upstream or at the lock nodes alone. It looks for",
	"    so long at what changes. For users who may run admin commands.",
	"ADOPT [MATCH <glob>]",
	"    Which keys are used as locks, how, and what adoption would make of them, as this",
	"    proxy has seen. For users who may run admin commands.",
	"HELP",
	"    Print this help.",
}

// adminFresh is how long the upstream's answer to IsAdmin is kept.
const adminFresh = 5 * time.Second

// Ctl runs a LOCKCTL.
func (c *Client) Ctl(ctx context.Context, args [][]byte) (Reply, error) {
	reply, err := (&ctl{c, c.conn.Database(), c.conn.Protocol()}).run(ctx, args)
	return Reply{Bytes: reply}, err
}

// visible returns another client's owner or address if this client may know it, else an
// empty string. Whoever knows an owner can unlock in its name, so only users who may run
// admin commands see it.
func (c *Client) visible(ctx context.Context, secret string) string {
	if time.Since(c.adminCheckedAt) > adminFresh {
		c.admin, _ = c.conn.IsAdmin(ctx)
		c.adminCheckedAt = time.Now()
	}
	if !c.admin {
		return ""
	}
	return secret
}

// mayForce returns nil if the client may take a lock of that name from its owner.
func (c *Client) mayForce(ctx context.Context, name string) error {
	admin, err := c.conn.IsAdmin(ctx)
	switch {
	case err != nil:
		return err
	case !admin:
		return errNoForce
	}
	return c.conn.MayLock(ctx, name)
}

// A ctl answers a LOCKCTL.
type ctl struct {
	*Client
	db, proto int // of the client
}

// run returns the reply to a LOCKCTL, whose name is args[0].
func (c *ctl) run(ctx context.Context, args [][]byte) ([]byte, error) {
	if len(args) < 2 {
		return nil, errors.New("ERR wrong number of arguments for 'lockctl' command; try LOCKCTL HELP")
	}
	ofLock := map[string]func(context.Context, locks.Key) ([]byte, error){
		"INFO": c.info, "WAITERS": c.waiters, "WHY": c.why, "FORCE": c.force,
	}
	switch word := strings.ToUpper(string(args[1])); {
	case word == "HELP" && len(args) == 2:
		return appendHelp(nil), nil
	case c.verbs.opt.Inspector == nil:
		return nil, errors.New("ERR LOCKCTL is not served here")
	case word == "ADOPT":
		return c.adopt(ctx, args[2:])
	case word == "LIST":
		return c.list(ctx, args[2:])
	case word == "FENCE" && len(args) == 4:
		return c.fence(ctx, args[2], string(args[3]))
	case word == "NODES" && len(args) == 2:
		return c.nodes(), nil
	case ofLock[word] != nil && len(args) == 3:
		name, err := lockName(args[2])
		if err != nil {
			return nil, err
		}
		return ofLock[word](ctx, locks.Key{DB: c.db, Name: name})
	case ofLock[word] != nil, word == "FENCE", word == "NODES", word == "HELP":
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

func (c *ctl) info(ctx context.Context, k locks.Key) ([]byte, error) {
	in, err := c.verbs.opt.Inspector.Inspect(ctx, k)
	switch {
	case err != nil:
		return nil, err
	case !in.Held && len(in.Readers) == 0:
		return resp.AppendNull(nil, c.proto), nil
	}
	f := append(c.holding(ctx, in.Holding), number("needed", in.Need), field{"nodes", c.nodeViews(ctx, in)})
	if len(in.Readers) > 0 {
		f = append(f, field{"read-by", c.readBy(ctx, in)})
	}
	return f.appendTo(nil, c.proto), nil
}

// readBy appends who reads a name, as an array of maps.
func (c *ctl) readBy(ctx context.Context, in locks.Inspection) []byte {
	b := resp.AppendArray(nil, len(in.Readers))
	for _, r := range in.Readers {
		f := fields{text("owner", shownOwner(c.visibleOwner(ctx, in.Holding.Name, r.Owner))), number("remaining-ms", ceilMillis(r.Remaining))}
		b = f.appendTo(b, c.proto)
	}
	return b
}

// holding are the fields of a lock that is held.
func (c *ctl) holding(ctx context.Context, h locks.Holding) fields {
	f := fields{
		text("name", h.Name),
		text("owner", shownOwner(c.visibleOwner(ctx, h.Name, h.Owner))),
		number("fence", h.Fence),
		number("holds", h.Holds),
		number("remaining-ms", ceilMillis(h.Remaining)),
		number("held-ms", h.Held.Milliseconds()),
		text("info", h.Info),
		text("session", yesNo(h.Session)),
		number("waiters", h.Waiters),
		number("votes", h.Votes),
	}
	if h.Client != "" && c.visible(ctx, h.Client) != "" {
		f = append(f, text("client", h.Client))
	}
	f = append(f, adopted(h.Owner)...)
	if h.Open {
		f = append(f, text("end", "none"))
	}
	if h.Readers > 0 {
		f = append(f, number("readers", h.Readers))
	}
	return f
}

// adopted are the fields that only an adopted lock has.
func adopted(owner string) fields {
	_, kind := locks.ShownOwner(owner)
	if kind == "" {
		return nil
	}
	return fields{text("adopted", string(kind))}
}

// shownOwner is an owner for people, if the client may see it.
func shownOwner(visible string) string {
	shown, _ := locks.ShownOwner(visible)
	return shown
}

// visibleOwner returns an owner if this client may see it: its own, or as an admin.
func (c *ctl) visibleOwner(ctx context.Context, name, owner string) string {
	if owner != "" && c.implicit.Owns(locks.Key{DB: c.db, Name: name}, owner) {
		return owner
	}
	return c.visible(ctx, owner)
}

// nodeViews appends what each node says, as an array of maps.
func (c *ctl) nodeViews(ctx context.Context, in locks.Inspection) []byte {
	b := resp.AppendArray(nil, len(in.Nodes))
	for _, v := range in.Nodes {
		f := fields{text("address", v.Address), text("says", nodeSays(v, in.Holding.Owner))}
		if v.Owner != "" {
			f = append(f, text("owner", shownOwner(c.visibleOwner(ctx, in.Holding.Name, v.Owner))), number("fence", v.Fence), number("remaining-ms", ceilMillis(v.Remaining)))
			f = append(f, adopted(v.Owner)...)
		}
		b = f.appendTo(b, c.proto)
	}
	return b
}

// nodeSays is a node's vote in a word; owner is whom the majority names.
func nodeSays(v locks.NodeView, owner string) string {
	switch {
	case v.State == locks.NodeDown, v.State == locks.NodeRefusing:
		return v.Standing()
	case v.Err != nil:
		return locks.WhySilent(v.Err)
	case v.Owner == "" && v.Readers > 0:
		return "shared"
	case v.Owner == "":
		return "free"
	case v.Owner == owner:
		return "held"
	}
	return "held by another owner"
}

// fence is LOCKCTL FENCE: it replies the fence of a lock if its value, field or owner is value; else the one under which an owner
// of that name reads it.
func (c *ctl) fence(ctx context.Context, arg []byte, value string) ([]byte, error) {
	name, err := lockName(arg)
	if err != nil {
		return nil, err
	}
	if err := c.conn.MayLock(ctx, name); err != nil {
		return nil, err
	}
	k := locks.Key{DB: c.db, Name: name}
	r, err := c.verbs.opt.Reader.Read(ctx, k)
	if has := r.Held && shownOwner(r.Owner) == value; err == nil && !has && value != "" && len(value) <= locks.MaxOwner {
		r, err = c.verbs.opt.Reader.Read(ctx, locks.Holder{Key: k, Owner: value}.Reading().Key)
	}
	switch {
	case err != nil:
		return nil, err
	case !r.Held || shownOwner(r.Owner) != value:
		return resp.AppendNullBulk(nil, c.proto), nil
	}
	return resp.AppendInt(nil, r.Fence), nil
}

func (c *ctl) list(ctx context.Context, args [][]byte) ([]byte, error) {
	r, err := parseList(args)
	if err != nil {
		return nil, err
	}
	r.DB = c.db
	l, err := c.verbs.opt.Inspector.List(ctx, r)
	if err != nil {
		return nil, err
	}
	b := resp.AppendBulkString(resp.AppendArray(nil, 2), l.Cursor)
	b = resp.AppendArray(b, len(l.Held))
	for _, h := range l.Held {
		b = c.holding(ctx, h).appendTo(b, c.proto)
	}
	return b, nil
}

func parseList(args [][]byte) (r locks.ListRequest, err error) {
	opts := options{rest: args, usage: listUsage}
	for opts.next() {
		switch opts.word {
		case "MATCH":
			r.Match, err = opts.bounded(0, locks.MaxName)
		case "CURSOR":
			r.Cursor, err = opts.bounded(1, 64)
		case "COUNT":
			var n int64
			n, err = opts.positive(32)
			r.Count = int(n)
		default:
			err = opts.unknown()
		}
		if err != nil {
			return r, err
		}
	}
	return r, opts.err
}

func (c *ctl) waiters(ctx context.Context, k locks.Key) ([]byte, error) {
	all := c.verbs.opt.Inspector.Waiters(k)
	b := resp.AppendArray(nil, len(all))
	for i, w := range all {
		f := fields{
			number("position", i+1),
			number("waiting-ms", w.Waiting.Milliseconds()),
			number("gives-up-ms", ceilMillis(w.Left)),
			text("owner", shownOwner(c.visibleOwner(ctx, k.Name, w.Owner))),
			text("info", w.Info),
			text("client", c.visible(ctx, w.Client)),
		}
		switch {
		case w.Permits > 0:
			f = append(f, number("permits", w.Permits))
		case w.Shared:
			f = append(f, text("shared", "yes"))
		}
		b = f.appendTo(b, c.proto)
	}
	return b, nil
}

func (c *ctl) why(ctx context.Context, k locks.Key) ([]byte, error) {
	in, err := c.verbs.opt.Inspector.Inspect(ctx, k)
	var quorum *locks.QuorumError
	if err != nil && !errors.As(err, &quorum) {
		return nil, err
	}
	e := explanation{
		Inspection: in, noQuorum: quorum != nil, waiters: c.verbs.opt.Inspector.Waiters(k),
		visible: func(owner string) string { return c.visibleOwner(ctx, k.Name, owner) },
	}
	lines := e.lines()
	b := resp.AppendArray(nil, len(lines))
	for _, line := range lines {
		b = resp.AppendBulkString(b, line)
	}
	return b, nil
}

// force takes a lock away. A client that takes one from its own session is disconnected for the loss, and must have the
// reply before. (Behind a LOCK that waits the reply may be long in coming: there it is not waited for.)
func (c *ctl) force(ctx context.Context, k locks.Key) ([]byte, error) {
	if c.sessions.begun() == nil || c.pending != nil {
		return c.takeAway(ctx, k)
	}
	c.sessions.beginForce(k)
	c.conn.Reply(c.takeAway(ctx, k))
	if c.sessions.endForce() {
		c.conn.Close()
	}
	return []byte{}, nil
}

func (c *ctl) takeAway(ctx context.Context, k locks.Key) ([]byte, error) {
	if err := c.mayForce(ctx, k.Name); err != nil {
		return nil, err
	}
	was, held, err := c.verbs.opt.Inspector.Force(ctx, k)
	switch {
	case err != nil:
		return nil, err
	case !held:
		return resp.AppendNull(nil, c.proto), nil
	}
	was.DB = k.DB
	c.logForced(was)
	return c.holding(ctx, was).appendTo(nil, c.proto), nil
}

func (c *ctl) nodes() []byte {
	all := c.verbs.opt.Nodes()
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
			number("doubt-ms", ceilMillis(n.Doubt)),
			text("error", locks.WhySilent(n.Err)),
			text("run-id", n.RunID),
			number("largest-fence", n.Largest),
			number("answered-in-us", n.Took.Microseconds()),
			number("queued", n.Queued),
		}
		nodes = f.appendTo(nodes, c.proto)
	}
	f := fields{
		number("voting", voting),
		number("needed", len(all)/2+1),
		text("hint", nodesHint(all)),
		{"nodes", nodes},
		{"proxies", c.proxies()},
	}
	return f.appendTo(nil, c.proto)
}

// sinceMillis is how many milliseconds ago a time was; 0 for the zero time.
func sinceMillis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return max(0, time.Since(t).Milliseconds())
}

func nodeKind(n locks.NodeStatus) string {
	switch {
	case n.Chosen:
		return "sentinel"
	case n.Etcd:
		return "etcd"
	}
	return "standalone"
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// fields are a map of the protocol, in order; a flat array in RESP2.
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
