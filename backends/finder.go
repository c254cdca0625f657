package backends

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

// What an upstream may be, as FinderOptions.Mode says it.
const (
	ModeAuto       = "auto"       // as its URL and itself say
	ModeStandalone = "standalone" // one server; its replicas, if anybody asks for them
	ModeReplicated = "replicated" // the addresses are a master and its replicas; who is what may change
	ModeSentinel   = "sentinel"   // the addresses are sentinels
	ModeCluster    = "cluster"    // the addresses are nodes of a Cluster
)

const (
	// askTimeout bounds the opening of a connection to a node, and the wait for its
	// answer.
	askTimeout = time.Second
	// askAgain is how long a look at a replicated upstream may be old.
	askAgain = time.Second
	// askCluster is the same of a Cluster, whose nodes tell who was sent to a wrong one.
	askCluster = 5 * time.Second
	// askPause is the least time between two looks.
	askPause = 100 * time.Millisecond
	// probePause is the least time between two probes of a standalone server, for
	// whether it has become a Cluster.
	probePause = time.Second
)

// FinderOptions are read once by NewFinder.
type FinderOptions struct {
	Mode     string // one of the modes; empty means ModeAuto
	Replicas bool   // whether replicas are wanted; without, a Topology may have none
	// SentinelUser and SentinelPassword are for sentinels; those of the URL are for
	// the servers that they watch. Both empty: none.
	SentinelUser, SentinelPassword string
	Of                             string       // what the log calls what is looked for; empty means "upstream"
	Log                            *slog.Logger // nil means slog.Default()
}

// A Finder keeps asking where the nodes of one upstream are. Run does the work;
// Mode, Hurry and Looked may be called from any goroutine.
type Finder struct {
	seed   *Server
	opt    FinderOptions
	hurry  chan struct{} // one seat
	looked chan struct{} // closed after the first look
	shown  atomic.Value  // mode, for others than Run

	// Of the goroutine in Run.
	mode    string
	sure    bool // of mode; false: nobody could be asked yet
	failing bool // the last look found nothing
	split   bool // the last look found several masters where there may be one
	masters string
	roles   map[string]role // of the nodes, as last heard
	around  []string        // a Cluster's nodes, masters first, or the sentinels
	silent  bool            // some node of around did not answer

	mu      sync.Mutex
	clients map[string]*inquiry

	watched map[string]context.CancelFunc // sentinels that are listened to
	watches sync.WaitGroup
}

// An inquiry is the connection over which a node is asked. asked is used by the
// goroutine in Run: inquiries of no more use are closed.
type inquiry struct {
	rueidis.Client
	asked bool
}

// NewFinder makes a Finder of the upstream that seed names. The error says what of
// its URL contradicts opt.Mode.
func NewFinder(seed *Server, opt FinderOptions) (*Finder, error) {
	if opt.Mode == "" {
		opt.Mode = ModeAuto
	}
	if opt.Of == "" {
		opt.Of = "upstream"
	}
	if opt.Log == nil {
		opt.Log = slog.Default()
	}
	f := &Finder{
		seed: seed, opt: opt, mode: opt.Mode, sure: opt.Mode != ModeAuto,
		hurry: make(chan struct{}, 1), looked: make(chan struct{}),
		clients: map[string]*inquiry{}, watched: map[string]context.CancelFunc{}, roles: map[string]role{},
	}
	if opt.Mode == ModeAuto {
		f.mode = guess(seed)
		f.sure = f.mode == ModeSentinel
	}
	f.shown.Store(f.mode)
	f.around = seed.opt.InitAddress
	return f, CheckMode(seed, opt.Mode)
}

// CheckMode says what of an upstream's URL contradicts the mode, if anything.
func CheckMode(seed *Server, mode string) error {
	switch {
	case mode == ModeSentinel && seed.MasterSet() == "":
		return errors.New("sentinel needs a master set; write redis://host:26379?master_set=name")
	case mode != ModeSentinel && mode != ModeAuto && seed.MasterSet() != "":
		return fmt.Errorf("the upstream's URL names a master set, which only sentinels have; not %s", mode)
	case mode == ModeStandalone && !seed.Single():
		return errors.New("a standalone upstream is one server, the upstream's URL names several addresses")
	case mode == ModeReplicated && seed.Single():
		return errors.New("replicated needs the addresses of all servers; write redis://host:port?addr=host:port&addr=host:port")
	}
	return nil
}

// guess is what an upstream is most likely, from its URL alone.
func guess(seed *Server) string {
	switch {
	case seed.MasterSet() != "":
		return ModeSentinel
	case !seed.Single():
		return ModeReplicated
	}
	return ModeStandalone
}

// First is the Topology before anybody was asked: the server that the URL names, or
// nobody where it may name others than the master.
func (f *Finder) First() *Topology {
	if f.mode == ModeStandalone {
		return &Topology{Shards: []Shard{{Master: f.seed}}}
	}
	return &Topology{Shards: []Shard{{}}}
}

// Mode is what the upstream is taken for: one of the modes, but ModeAuto.
func (f *Finder) Mode() string { return f.shown.Load().(string) }

// Hurry asks for a look soon. It does not block and may be called often.
func (f *Finder) Hurry() {
	select {
	case f.hurry <- struct{}{}:
	default:
	}
}

// Looked is closed when Run has asked around once, whatever came of it.
func (f *Finder) Looked() <-chan struct{} { return f.looked }

// Run looks until ctx ends and gives found what it sees, one call after the other,
// also where nothing has changed. While nobody can be asked the last word holds. It
// returns ctx's error when all that it started has ended.
func (f *Finder) Run(ctx context.Context, found func(*Topology)) error {
	defer f.close()
	for first := true; ; first = false {
		t, err := f.look(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		f.note(t, err)
		f.shown.Store(f.mode)
		if t != nil {
			found(t)
		}
		f.dropUnasked()
		if first {
			close(f.looked)
		}
		if !f.rest(ctx) {
			return ctx.Err()
		}
	}
}

// look asks around. Both results may be nil: there was nobody to ask.
func (f *Finder) look(ctx context.Context) (*Topology, error) {
	if f.opt.Mode == ModeAuto && (!f.sure || f.mode == ModeStandalone) {
		if err := f.settle(ctx); err != nil {
			return nil, err
		}
	}
	switch {
	case f.mode == ModeSentinel:
		return f.lookSentinels(ctx)
	case f.mode == ModeCluster:
		return f.lookCluster(ctx)
	case f.mode == ModeReplicated:
		return f.lookReplicated(ctx)
	case f.opt.Replicas:
		return f.lookStandalone(ctx)
	}
	return nil, nil
}

// settle asks the addresses of the URL what they are. A server that will not say is
// no Cluster: it would be of no use as one.
func (f *Finder) settle(ctx context.Context) error {
	addrs := f.seed.opt.InitAddress
	said := make([]rueidis.RedisResult, len(addrs))
	f.ask(addrs, func(i int, c rueidis.Client) { said[i] = within(ctx, c, "INFO", "server") })
	var reason error
	for i, r := range said {
		text, err := r.ToString()
		switch {
		case ofCluster(text):
			f.mode, f.sure = ModeCluster, true
			return nil
		case err == nil || isRefusal(err):
			if err != nil && !f.sure {
				f.opt.Log.Info("the upstream will not say what it is", "asked", addrs[i], "taken for", f.mode, "error", err)
			}
			f.sure = true
		default:
			reason = fmt.Errorf("%s: %w", addrs[i], err)
		}
	}
	if f.sure {
		return nil
	}
	return reason
}

// ofCluster reports whether the server section of INFO is that of a Cluster node. Redis
// says so in redis_mode, Valkey in server_mode.
func ofCluster(info string) bool {
	return strings.Contains(info, "redis_mode:cluster") || strings.Contains(info, "server_mode:cluster")
}

// isRefusal reports whether the server refuses to answer for good, not only for now.
func isRefusal(err error) bool {
	reply, ok := rueidis.IsRedisErr(err)
	if !ok {
		return false
	}
	word, _, _ := strings.Cut(reply.Error(), " ")
	return word != "LOADING" && word != "BUSY" && word != "MASTERDOWN"
}

// rest waits until it is time for another look; false: ctx has ended.
func (f *Finder) rest(ctx context.Context) bool {
	pause, age := f.pace()
	if !sleep(ctx, pause) {
		return false
	}
	var due <-chan time.Time
	if age > 0 {
		due = time.After(age - pause)
	}
	select {
	case <-ctx.Done():
		return false
	case <-f.hurry:
	case <-due:
	}
	return true
}

// pace is the least time to the next look, and the most; 0: no end, until somebody
// is in a hurry.
func (f *Finder) pace() (least, most time.Duration) {
	switch {
	case f.mode == ModeStandalone && f.sure && !f.opt.Replicas:
		return probePause, 0
	case f.mode == ModeStandalone && !f.opt.Replicas:
		return probePause, probePause
	case f.mode == ModeCluster && !f.failing && !f.silent:
		return askPause, askCluster
	}
	return askPause, askAgain
}

// note says in the log what has changed.
func (f *Finder) note(t *Topology, err error) {
	alone := f.mode == ModeStandalone && !f.opt.Replicas // whose pool says itself that it is down
	if err != nil && !f.failing && !alone {
		f.opt.Log.Warn("cannot see where the "+f.opt.Of+"'s nodes are; the last word holds", f.key(), f.seed.String(), "error", err)
	}
	f.failing = err != nil
	if t == nil {
		return
	}
	var names []string
	for _, s := range t.Shards {
		if s.Master != nil {
			names = append(names, s.Master.String())
		}
	}
	now := strings.Join(names, " ")
	if now == f.masters {
		return
	}
	f.masters = now
	if now == "" {
		f.opt.Log.Warn("the "+f.opt.Of+" has no master now", f.key(), f.seed.String())
		return
	}
	f.opt.Log.Info("where the "+f.opt.Of+"'s masters are", "mode", f.mode, "masters", now, f.key(), f.seed.String())
}

// key is Of as a key of the log.
func (f *Finder) key() string { return strings.ReplaceAll(f.opt.Of, " ", "_") }

// ask runs question for all addresses at once and returns when all have ended, which
// they must soon.
func (f *Finder) ask(addrs []string, question func(i int, c rueidis.Client)) {
	f.askServers(addrs, f.server, question)
}

func (f *Finder) askServers(addrs []string, at func(string) *Server, question func(i int, c rueidis.Client)) {
	var wg sync.WaitGroup
	for i, addr := range addrs {
		wg.Go(func() {
			if c := f.client(addr, at); c != nil {
				question(i, c)
			}
		})
	}
	wg.Wait()
}

// server is the node at addr.
func (f *Finder) server(addr string) *Server {
	if f.seed.Single() && addr == f.seed.name {
		return f.seed
	}
	return f.seed.At(addr)
}

// client is the connection for asking the node at addr. It is nil where there can be
// none.
func (f *Finder) client(addr string, at func(string) *Server) rueidis.Client {
	f.mu.Lock()
	q := f.clients[addr]
	f.mu.Unlock()
	if q == nil {
		c, err := at(addr).Client(impatient)
		if err != nil {
			return nil
		}
		q = &inquiry{Client: c}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if other := f.clients[addr]; other != nil && other != q { // the URL names it twice
		q.Close()
		q = other
	}
	q.asked = true
	f.clients[addr] = q
	return q.Client
}

// impatient are the options of connections for questions: a node that does not answer
// is as good as gone, and in which database it is asked does not matter.
func impatient(opt *rueidis.ClientOption) {
	opt.Dialer.Timeout = min(opt.Dialer.Timeout, askTimeout)
	opt.ConnWriteTimeout = askTimeout
	opt.SelectDB = 0
}

// dropUnasked closes the connections to nodes that nobody asks any more; to a
// standalone server all.
func (f *Finder) dropUnasked() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for addr, q := range f.clients {
		if !q.asked || f.mode == ModeStandalone && !f.opt.Replicas {
			q.Close()
			delete(f.clients, addr)
			delete(f.roles, addr)
		}
		q.asked = false
	}
}

func (f *Finder) close() {
	for _, stop := range f.watched {
		stop()
	}
	f.watches.Wait()
	for _, q := range f.clients {
		q.Close()
	}
}

// within gives one command askTimeout.
func within(ctx context.Context, c rueidis.Client, args ...string) rueidis.RedisResult {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return c.Do(ctx, command(c, args...))
}

func command(c rueidis.Client, args ...string) rueidis.Completed {
	return c.B().Arbitrary(args[0]).Args(args[1:]...).Build()
}

// sleep is false if ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
