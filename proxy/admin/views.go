package admin

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/commands/lockcmd"
)

// The data of the page's events, as JSON. Times are durations in milliseconds at the moment
// of sending, so that clocks need not agree; fences are strings, since a script's numbers
// cannot represent all of them.

// A stateView is the proxy's own state. It causes no request.
type stateView struct {
	Summary summaryView `json:"summary"`
	Health  []checkView `json:"health"`
	Proxy   proxyView   `json:"proxy"`
	Nodes   []nodeView  `json:"nodes"`
	Needed  int         `json:"needed"` // nodes that must agree
	Queues  []queueView `json:"queues"` // the longest
	Lines   int         `json:"lines"`  // number of all queues
	Asked   []hotView   `json:"asked"`  // names by LOCKs
	Waited  []hotView   `json:"waited"` // names by time waited
	Force   bool        `json:"force"`  // --admin-force is set
	Viewers int         `json:"viewers"`
}

// A summaryView says in a sentence how the proxy and its nodes are.
type summaryView struct {
	Kind string `json:"kind"` // good, warn or bad
	Says string `json:"says"`
}

// A checkView is a line of /readyz.
type checkView struct {
	Of   string `json:"of"`
	Says string `json:"says"`
	OK   bool   `json:"ok"`
}

type proxyView struct {
	Version  string  `json:"version"`
	Uptime   int64   `json:"uptime_ms"`
	Clients  int     `json:"clients"`
	Draining bool    `json:"draining"`
	Waiting  int     `json:"waiting"`
	Sessions int     `json:"sessions"`
	Kept     int     `json:"session_locks"`
	Grants   float64 `json:"grants_per_s"`
	Refusals float64 `json:"refusals_per_s"`
	NoQuorum float64 `json:"noquorum_per_s"`
	Failed   int64   `json:"noquorum"` // since the start
}

type nodeView struct {
	Address    string `json:"address"`
	State      string `json:"state"`    // with why, where it is down or refuses
	Since      int64  `json:"since_ms"` // for how long
	Up         bool   `json:"up"`
	Votes      bool   `json:"votes"`         // it takes part
	Quarantine int64  `json:"quarantine_ms"` // for how long still, if no copy ends it
	Copies     bool   `json:"copies"`        // in quarantine: it votes as soon as it knows what a majority of the others hold
	Doubt      int64  `json:"doubt_ms"`      // for how long at most it abstains for names that were held when it forgot
	Latency    int64  `json:"latency_us"`    // of its last answer; 0: it is not up
	Queued     int    `json:"queued"`
	Error      string `json:"error"`
	Paused     bool   `json:"paused"` // it failed just now and is not asked for a moment
	Yes        int64  `json:"yes"`    // its votes, since the start
	No         int64  `json:"no"`
	None       int64  `json:"none"` // no vote, or one that did not count
}

type queueView struct {
	ID      string   `json:"id"`
	DB      int      `json:"db"`
	Name    textView `json:"name"`
	Waiters int      `json:"waiters"`
	Longest int64    `json:"longest_ms"`
	Next    textView `json:"next"`
	Holder  textView `json:"holder"`
}

type hotView struct {
	ID       string   `json:"id"`
	DB       int      `json:"db"`
	Name     textView `json:"name"`
	Grants   float64  `json:"grants"` // per minute, as the others
	Refusals float64  `json:"refusals"`
	Waited   int64    `json:"waited_ms"`
}

// A locksView is who holds what, by a quorum of the lock nodes.
type locksView struct {
	Rows     []lockView `json:"rows"`
	Filter   string     `json:"filter"`
	More     int        `json:"more"`     // names without a row
	Names    int        `json:"names"`    // those that the filter lets through, held or not
	Complete bool       `json:"complete"` // all names are listed; else there are more than More
	Age      int64      `json:"age_ms"`
	Seen     int64      `json:"seen_ms"`  // since the names were listed; 0 if they never were
	Every    int64      `json:"every_ms"` // until the next event
	Error    string     `json:"error"`    // Rows could not be read
}

type lockView struct {
	ID        string   `json:"id"`
	DB        int      `json:"db"`
	Name      textView `json:"name"`
	Owner     textView `json:"owner"`             // of an adopted lock the value or field that its client stored
	Adopted   string   `json:"adopted,omitempty"` // string or hash; empty: LOCK has taken it
	Info      textView `json:"info"`
	Fence     string   `json:"fence"`
	Holds     int      `json:"holds"`
	Held      int64    `json:"held_ms"`
	Remaining int64    `json:"remaining_ms"`
	Here      bool     `json:"here"` // this proxy granted it
	Waited    int64    `json:"waited_ms"`
	Session   bool     `json:"session"`
	Open      bool     `json:"open,omitempty"` // it has no end
	Waiters   int      `json:"waiters"`
	Readers   int      `json:"readers,omitempty"`
	Read      bool     `json:"read,omitempty"` // it is only read: of its owner nothing is known
	Votes     int      `json:"votes"`
	Of        int      `json:"of"` // nodes there are
}

// A detailView is all about one lock.
type detailView struct {
	ID      string       `json:"id"`
	DB      int          `json:"db"`
	Name    string       `json:"name"` // in full, as the other texts
	Held    bool         `json:"held"`
	Owner   string       `json:"owner"`
	Adopted string       `json:"adopted,omitempty"`
	Info    string       `json:"info"`
	Fence   string       `json:"fence"`
	Holds   []holdView   `json:"holds"` // the oldest first
	Needed  int          `json:"needed"`
	Nodes   []voteView   `json:"nodes"`
	Readers []readerView `json:"readers"` // those whose leases end last
	Reading int          `json:"reading"`
	Waiters []waiterView `json:"waiters"` // the first
	Waiting int          `json:"waiting"`
	Why     []string     `json:"why"` // the lines of LOCKCTL WHY

	Client   string          `json:"client"`   // where the holder was when this proxy granted it the lock; empty: not known
	HeldFor  int64           `json:"held_ms"`  // if held
	Timeline []happeningView `json:"timeline"` // the oldest first
	Error    string          `json:"error"`
}

// A holdView is one of the owner's holds.
type holdView struct {
	Taken int64 `json:"taken_ms"`
	Left  int64 `json:"left_ms"`
}

const detailHolds = 10

// A readerView is one who reads the lock, or has a permit.
type readerView struct {
	Owner textView `json:"owner"`
	Left  int64    `json:"left_ms"`
}

const detailReaders = 50

// A voteView is one node's answer about a lock.
type voteView struct {
	Address   string `json:"address"`
	Says      string `json:"says"`
	Owner     string `json:"owner"`
	Adopted   string `json:"adopted,omitempty"`
	Fence     string `json:"fence"`
	Remaining int64  `json:"remaining_ms"`
}

type waiterView struct {
	Owner   textView `json:"owner"`
	Client  textView `json:"client"`
	Info    textView `json:"info"`
	Waiting int64    `json:"waiting_ms"`
	Left    int64    `json:"left_ms"`
	Shared  bool     `json:"shared,omitempty"`  // to read, or for a permit
	Permits int      `json:"permits,omitempty"` // for one of so many
}

// sinceMillis is the time since t in milliseconds; 0 if t is zero.
func sinceMillis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return millis(max(0, time.Since(t)))
}

// summarize is the summary of a state without one.
func summarize(v stateView) summaryView {
	voting := 0
	for _, n := range v.Nodes {
		if n.Votes {
			voting++
		}
	}
	var failed []string
	for _, c := range v.Health {
		if !c.OK {
			failed = append(failed, c.Of+" "+c.Says)
		}
	}
	vote := fmt.Sprintf("%d of %d lock nodes vote, %d must agree.", voting, len(v.Nodes), v.Needed)
	switch spare := voting - v.Needed; {
	case spare < 0:
		return summaryView{"bad", "No quorum: " + vote + " No lock can be taken or renewed."}
	case len(failed) > 0:
		return summaryView{"bad", "Not ready: " + strings.Join(failed, "; ") + "."}
	case voting < len(v.Nodes) && spare == 0:
		return summaryView{"warn", "Ready, but " + vote + " Locks go on; no other node may fail."}
	case voting < len(v.Nodes):
		return summaryView{"warn", fmt.Sprintf("Ready, but %s Locks go on; %d more may fail.", vote, spare)}
	}
	return summaryView{"good", fmt.Sprintf("Ready: all %d lock nodes vote, %d must agree.", voting, v.Needed)}
}

func viewNode(n locks.NodeStatus, counted locks.NodeStats) nodeView {
	if !n.Up {
		n.Took = 0
	}
	return nodeView{
		Address: n.Address, State: shown(n.Brief()), Since: sinceMillis(n.Since), Up: n.Up, Votes: n.Ready(),
		Quarantine: millis(n.Left), Copies: n.Copies, Doubt: millis(n.Doubt), Latency: n.Took.Microseconds(), Queued: n.Queued, Error: shown(locks.WhySilent(n.Err)),
		Paused: counted.Paused, Yes: counted.Yes, No: counted.No, None: counted.None,
	}
}

func viewQueue(q locks.Queue) queueView {
	return queueView{
		ID: nameID(q.Key), DB: q.DB, Name: short(q.Name),
		Waiters: q.Waiters, Longest: millis(q.Longest), Next: shortOwner(q.Next), Holder: shortOwner(q.Holder),
	}
}

func viewHot(h locks.HotName) hotView {
	return hotView{
		ID: nameID(h.Key), DB: h.DB, Name: short(h.Name),
		Grants: h.Grants, Refusals: h.Refusals, Waited: millis(h.Waited),
	}
}

func viewLock(h locks.Holding, nodes int) lockView {
	return lockView{
		ID: nameID(h.Key), DB: h.DB, Name: short(h.Name), Owner: shortOwner(h.Owner), Adopted: adopted(h.Owner), Info: short(h.Info),
		Fence: strconv.FormatInt(h.Fence, 10), Holds: h.Holds, Held: millis(h.Held), Remaining: millis(h.Remaining),
		Here: h.Here, Waited: millis(h.Waited), Session: h.Session, Open: h.Open, Waiters: h.Waiters, Readers: h.Readers, Read: h.Owner == "" && h.Readers > 0, Votes: h.Votes, Of: nodes,
	}
}

// detailWaiters is the number of waiters in a detailView.
const detailWaiters = 50

func viewDetail(n locks.Key, in locks.Inspection, waiters []locks.Waiter, lines *timelines, err error) detailView {
	h := in.Holding
	d := detailView{
		ID: nameID(n), DB: n.DB, Name: shown(n.Name), Held: in.Held, Owner: shownOwner(h.Owner), Adopted: adopted(h.Owner), Info: shown(h.Info),
		Needed: in.Need, Holds: []holdView{}, Nodes: []voteView{}, Waiters: []waiterView{}, Waiting: len(waiters),
		Readers: []readerView{}, Reading: max(h.Readers, len(in.Readers)),
		Why: lockcmd.Explain(in, waiters, err),
	}
	if in.Held {
		d.Fence, d.HeldFor = strconv.FormatInt(h.Fence, 10), millis(h.Held)
		for _, each := range in.Each[:min(len(in.Each), detailHolds)] {
			d.Holds = append(d.Holds, holdView{Taken: millis(each.Taken), Left: millis(each.Left)})
		}
	}
	d.Timeline, d.Client = lines.view(n, h.Fence)
	if err != nil {
		d.Error = shown(err.Error())
	}
	for _, v := range in.Nodes {
		d.Nodes = append(d.Nodes, viewVote(v, h.Owner))
	}
	for _, r := range in.Readers[:min(len(in.Readers), detailReaders)] {
		d.Readers = append(d.Readers, readerView{Owner: shortOwner(r.Owner), Left: millis(r.Remaining)})
	}
	for _, w := range waiters[:min(len(waiters), detailWaiters)] {
		d.Waiters = append(d.Waiters, waiterView{
			Owner: shortOwner(w.Owner), Client: short(w.Client), Info: short(w.Info), Waiting: millis(w.Waiting), Left: millis(w.Left), Shared: w.Shared, Permits: w.Permits,
		})
	}
	return d
}

// viewVote is a node's answer, compared with the owner by majority.
func viewVote(v locks.NodeView, owner string) voteView {
	s := voteView{Address: v.Address, Says: "held by another owner", Owner: shownOwner(v.Owner), Adopted: adopted(v.Owner), Remaining: millis(v.Remaining)}
	switch {
	case v.State == locks.NodeQuarantine && v.Copies:
		s.Says = "does not vote yet: it may have forgotten leases, and first has to know what the others hold"
	case v.Doubt > 0:
		s.Says = "had forgotten its locks, and abstains for another " + v.Doubt.Round(time.Second).String() + ", or until it is unlocked"
	case v.State == locks.NodeQuarantine:
		s.Says = "does not vote for another " + v.Left.Round(time.Second).String() + ": it may have forgotten leases"
	case v.State == locks.NodeDown, v.State == locks.NodeRefusing:
		s.Says = shown(v.Standing())
	case v.Err != nil:
		s.Says = shown(locks.WhySilent(v.Err))
	case v.Owner == "" && v.Readers > 0:
		s.Says = "shared by " + strconv.Itoa(v.Readers)
	case v.Owner == "":
		s.Says = "free"
	case v.Owner == owner:
		s.Says = "held"
	}
	if v.Owner != "" {
		s.Fence = strconv.FormatInt(v.Fence, 10)
	}
	return s
}
