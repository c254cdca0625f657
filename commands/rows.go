package commands

import (
	"context"
	"slices"
	"strings"

	"github.com/lockproxy/lockproxy/commands/acl"
	"github.com/lockproxy/lockproxy/commands/cluster"
	"github.com/lockproxy/lockproxy/commands/lockcmd"
	"github.com/lockproxy/lockproxy/commands/stats"
	"github.com/lockproxy/lockproxy/commands/table"
	"github.com/lockproxy/lockproxy/commands/tx"
)

// A command is one row of the table: everything the proxy knows of a command.
type command = table.Row[handlers]

// handlers are how a session handles a command that it does not just send.
type handlers struct {
	// try handles it at once; false: it would have to wait, and nothing has happened. nil:
	// it is sent as the row's Need says.
	try func(s *Session, q request) bool
	// run handles it, and may wait; nil: it is sent as the row's Need says.
	run func(s *Session, ctx context.Context, q request)
	// verb does what a lock verb says; nil: it is none, or LOCK or LOCKALL, which may be Pending.
	verb lockcmd.Verb
	// handles reports whether run is for these arguments, in this state of the session;
	// nil: it always is.
	handles func(s *Session, args [][]byte) bool

	// tryInTx is try inside MULTI; nil: it is queued. runInTx is run there, false for what
	// is no matter of its own; nil: there is nothing to wait for.
	tryInTx func(s *Session, q request) bool
	runInTx func(s *Session, ctx context.Context, q request) bool
	// passthrough is try on a passthrough connection; nil: it is relayed.
	passthrough func(s *Session, q request) bool
	// runInCluster handles it in a Cluster; false: it goes where it would anyway. nil: the same.
	runInCluster func(s *Session, ctx context.Context, q request) bool
}

// isHandled reports whether h handles a command that is on no special connection.
func isHandled(h *handlers) bool { return h.try != nil || h.run != nil }

// allRows are the rows of the table. Each command of Redis 7.0 has one, and each
// subcommand that is not as its container. What an upstream has beyond these is as its own
// COMMAND says: see Session.row.
func allRows() []*command {
	return slices.Concat(lockRows(), identityRows(), clientRows(), txRows(), subscriptionRows(), waitRows(), serverRows(), table.Plain[handlers]())
}

func lockRows() []*command {
	row := func(name string, class stats.Class, verb lockcmd.Verb) *command {
		return &command{Name: name, Class: class, Effect: table.LockVerb | table.WhileSubscribed | table.SessionOnly,
			Do: handlers{verb: verb, run: (*Session).runVerb, tryInTx: (*Session).refuseVerbInTx, passthrough: mustWait}}
	}
	return []*command{row("lock", stats.Lock, nil), row("renew", stats.Renew, (*lockcmd.Client).Renew), row("unlock", stats.Unlock, (*lockcmd.Client).Unlock),
		row("lockall", stats.Lock, nil), row("renewall", stats.Renew, (*lockcmd.Client).RenewAll), row("unlockall", stats.Unlock, (*lockcmd.Client).UnlockAll),
		row("lockctl", stats.Lockctl, (*lockcmd.Client).Ctl)}
}

// mustWait is the try of a command that always waits.
func mustWait(*Session, request) bool { return false }

func identityRows() []*command {
	const identity = table.ChangesClient | table.ChangesVerbs | table.SessionOnly
	row := func(name string, e table.Effect, do handlers) *command {
		return &command{Name: name, Class: stats.Connection, Effect: e, Do: do}
	}
	auth := row("auth", identity, handlers{run: (*Session).auth, passthrough: (*Session).passAuth})
	hello := row("hello", identity, handlers{run: (*Session).hello, passthrough: (*Session).passHello, tryInTx: (*Session).queueTranslated})
	selectDB := row("select", identity, handlers{run: (*Session).selectDB, passthrough: (*Session).passSelect})
	auth.Changes, hello.Changes, selectDB.Changes = tx.AuthChanges, tx.HelloChanges, tx.SelectChanges
	return []*command{auth, hello, selectDB,
		row("reset", table.ChangesVerbs|table.WhileSubscribed|table.SessionOnly, handlers{run: (*Session).reset, tryInTx: (*Session).refusedReset, passthrough: (*Session).refusedReset}),
		row("quit", table.ChangesVerbs|table.WhileSubscribed|table.SessionOnly, handlers{run: (*Session).quit, tryInTx: mustWait, passthrough: (*Session).passQuit}),
		{Name: "post", Class: stats.Other, Effect: table.IsHTTP}, {Name: "host:", Class: stats.Other, Effect: table.IsHTTP},
	}
}

// clientRows are CLIENT, whose subcommands mean the client's own connection at the
// upstream, or others by the proxy's ids.
func clientRows() []*command {
	row := func(sub string, run func(*Session, context.Context, request)) *command {
		return &command{Name: "client" + sub, Class: stats.Connection, Effect: table.ChangesClient | table.SessionOnly, Changes: tx.ClientChanges,
			Do: handlers{run: onClient(run), tryInTx: (*Session).queueClient, passthrough: (*Session).passClient}}
	}
	ask := func(sub string) *command { return row(sub, (*Session).runTranslated) }
	list, kill := ask("|list"), row("|kill", func(s *Session, ctx context.Context, q request) { s.kill(ctx, q.args) })
	list.Do.runInTx, kill.Do.runInTx = (*Session).queueFiltered, (*Session).queueFiltered
	reply := row("|reply", (*Session).startPassthrough)
	reply.Do.tryInTx, reply.Effect = mustWait, reply.Effect|table.ChangesVerbs // then replies can no longer be counted
	client := row("", (*Session).forwardClient)
	client.OtherSub = row("|", (*Session).runUnknownSub)
	return []*command{client,
		list, kill, reply, ask("|id"), ask("|info"), ask("|getredir"), ask("|trackinginfo"),
		row("|unblock", (*Session).runUnblock), row("|setname", (*Session).setName), row("|getname", (*Session).getName),
		row("|pause", (*Session).pause), row("|unpause", (*Session).pause),
		row("|setinfo", (*Session).setInfo), row("|help", (*Session).forwardClient),
		row("|caching", (*Session).runPinnedForLife), row("|no-evict", (*Session).runPinnedForLife), row("|tracking", (*Session).runPinnedForLife),
	}
}

func txRows() []*command {
	begin := func(name string, e table.Effect) *command {
		return &command{Name: name, Class: stats.Transactions, Effect: e, Do: handlers{try: (*Session).tryBegin, run: (*Session).runBegin}}
	}
	end := func(name string) *command {
		return &command{Name: name, Class: stats.Transactions, Effect: table.EndsTx | table.ChangesVerbs | table.SessionOnly, Cluster: cluster.Rule{AnyNode: true},
			Do: handlers{try: (*Session).tryEnd, tryInTx: (*Session).endTx, runInTx: (*Session).runEndTx, passthrough: (*Session).passEnd}}
	}
	multi, watch := begin("multi", table.BeginsTx|table.ChangesVerbs|table.SessionOnly), begin("watch", table.Watches)
	multi.Do.passthrough = (*Session).passMulti
	watch.Do.runInCluster = (*Session).runWatch
	return []*command{multi, watch, end("exec"), end("discard"),
		{Name: "unwatch", Class: stats.Transactions, Effect: table.Unwatches, Cluster: cluster.Rule{AnyNode: true}, Do: handlers{try: (*Session).tryUnwatch}}}
}

// subscriptionRows are the commands with replies and messages that are not one per
// command.
func subscriptionRows() []*command {
	var all []*command
	for _, name := range strings.Fields("subscribe psubscribe ssubscribe unsubscribe punsubscribe sunsubscribe monitor sync psync replconf") {
		c := &command{Name: name, Class: stats.PubSub, Effect: table.Messages | table.WhileSubscribed | table.SessionOnly, Need: table.Always(table.PassthroughConn),
			Do: handlers{tryInTx: (*Session).queueMessages, passthrough: (*Session).passSubscribe}}
		if strings.HasSuffix(name, "sync") || name == "replconf" { // which need not be answered
			c.Do.tryInTx, c.Cluster.Refuse = mustWait, cluster.AboutOneNode
		}
		all = append(all, c)
	}
	return all
}

func waitRows() []*command {
	wait := handlers{run: (*Session).runWait, runInCluster: (*Session).runWaitMasters}
	return []*command{{Name: "wait", Class: stats.Blocking, Do: wait}, {Name: "waitaof", Class: stats.Blocking, Do: wait}}
}

// serverRows are what kills scripts, and what changes users and commands.
func serverRows() []*command {
	var all []*command
	for _, name := range strings.Fields("script|kill function|kill") { // it must overtake the script that it kills
		all = append(all, &command{Name: name, Need: table.Always(table.PinnedConn), Do: handlers{runInCluster: (*Session).runScriptKill}})
	}
	users := func(names string, handles func(*Session, [][]byte) bool) {
		for _, c := range table.OnAllMasters[handlers](cluster.First, names) {
			c.Do = handlers{run: (*Session).changeUsers, handles: handles}
			all = append(all, c)
		}
	}
	users("acl|setuser acl|deluser acl|load", func(s *Session, _ [][]byte) bool { return s.changesUsersHere() })
	users("config|set", func(s *Session, args [][]byte) bool { return s.changesUsersHere() && acl.SetsPassword(args) })
	for _, sub := range strings.Fields("load loadex unload") {
		all = append(all, &command{Name: "module|" + sub, Effect: table.SessionOnly, Cluster: cluster.Rule{AnyNode: true}, Do: handlers{run: (*Session).runModule}})
	}
	return all
}
