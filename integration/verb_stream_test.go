package integration

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// A locker makes up what one client says, verbs among ordinary commands, and knows what
// it must be answered. Names are the client's alone, but those that the rival has.
type locker struct {
	*rand.Rand
	id     string
	said   []string // commands since the last burst
	story  []string // all commands, as they are shown
	wants  []want   // the replies to all of them
	proto  int
	db     int
	inTx   bool
	queued int
	spoilt bool // the EXEC will be refused
	listen bool // there are subscriptions
	raw    bool // and have been: verbs in a transaction are refused by the upstream
	off    bool // CLIENT REPLY
	skip   bool
	strung bool // a LOCK that is before what comes may wait
	unread bool // the last command is not answered, so that it may go on when more is said
	fresh  int  // names said in the shadow of a LOCK that may wait
	locks  map[string]*lockState
	values map[string]string
}

// A lockState is what is known of one name in one database.
type lockState struct {
	owner string // "": nobody
	holds int
	mine  bool   // taken on this connection with an owner that the proxy generated
	fence *int64 // of the holder, once it is known
	past  *int64 // of the holder before, or nil
}

// A want is what a reply must be like.
type want struct {
	command string
	fits    func(v redistest.Value) bool
}

const rivalName = "held"

func newLocker(seed uint64) *locker {
	l := &locker{Rand: rand.New(rand.NewPCG(seed, 2)), id: strconv.FormatUint(seed, 36)}
	l.forget()
	l.locks, l.values = map[string]*lockState{}, map[string]string{}
	return l
}

// forget is what RESET does.
func (l *locker) forget() {
	l.proto, l.db, l.inTx, l.spoilt, l.listen, l.raw, l.off, l.skip = 2, 0, false, false, false, false, false, false
	for _, s := range l.locks {
		if s.mine {
			s.mine, s.owner = false, "?"
		}
	}
}

// expect sends a command that must be answered in this way, unless CLIENT REPLY has it not
// answered.
func (l *locker) expect(fits func(redistest.Value) bool, args ...string) {
	l.said = append(l.said, redistest.Command(args...))
	l.story = append(l.story, fmt.Sprintf("%.80q", args))
	quiet := l.off || l.skip
	l.skip = false
	if l.unread = quiet; !quiet {
		l.wants = append(l.wants, want{fmt.Sprintf("%.80q", args), fits})
	}
}

func exactly(raw string) func(redistest.Value) bool {
	return func(v redistest.Value) bool { return v.Raw == raw }
}

func refusal(word string) func(redistest.Value) bool {
	return func(v redistest.Value) bool { return v.IsError() && strings.HasPrefix(v.Text, word) }
}

func anything(redistest.Value) bool { return true }

func (l *locker) null() func(redistest.Value) bool {
	if l.proto == 3 {
		return exactly("_\r\n")
	}
	return exactly("*-1\r\n")
}

// bulkOrNull is the answer to GET.
func (l *locker) bulkOrNull(s string) func(redistest.Value) bool {
	switch {
	case s != "":
		return exactly(fmt.Sprintf("$%d\r\n%s\r\n", len(s), s))
	case l.proto == 3:
		return exactly("_\r\n")
	}
	return exactly("$-1\r\n")
}

// ordinary says that the connection takes ordinary commands, and else sends one and
// knows how it is refused or queued.
func (l *locker) ordinary(args ...string) bool {
	switch {
	case l.listen && l.proto == 2:
		l.expect(refusal("ERR Can't execute '"+strings.ToLower(args[0])+"'"), args...)
	case l.inTx:
		l.queued++
		l.expect(exactly("+QUEUED\r\n"), args...)
	default:
		return true
	}
	return false
}

// verb is ordinary for a verb.
func (l *locker) verb(args ...string) bool {
	switch {
	case l.inTx:
		l.spoilt = true
		word := "ERR " + strings.ToUpper(args[0]) + " is not allowed inside a transaction"
		if l.raw {
			word = "ERR unknown command"
		}
		if l.listen && l.proto == 2 {
			word = "ERR"
		}
		l.expect(refusal(word), args...)
	case l.listen && l.proto == 2:
		l.expect(refusal("ERR Can't execute '"+strings.ToLower(args[0])+"'"), args...)
	default:
		return true
	}
	return false
}

// name is one of the client's, and one that no command before it in this burst has named
// where a LOCK may wait.
func (l *locker) name() string {
	if l.strung {
		l.fresh++
		return fmt.Sprint("fresh", l.id, l.fresh)
	}
	return fmt.Sprint("n", l.id, l.IntN(3))
}

func (l *locker) at(name string) *lockState {
	key := fmt.Sprint(l.db, "/", name)
	if l.locks[key] == nil {
		l.locks[key] = &lockState{}
	}
	return l.locks[key]
}

// lock is a LOCK that is granted or refused at once.
func (l *locker) lock() {
	name := l.name()
	owner, options := l.lockOptions()
	args := append([]string{"LOCK", name, "40s"}, options...)
	if !l.verb(args...) {
		return
	}
	s := l.at(name)
	l.strung = l.strung || slices.Contains(args, "20ms")
	switch {
	case s.owner == "" || s.owner == owner:
		fits := l.granted(s, owner)
		l.expect(fits, args...)
		if slices.Contains(args, "REQ") && l.IntN(2) == 0 { // sent again, it is done once
			l.expect(fits, args...)
		}
	case slices.Contains(args, "RETRYAFTER"):
		l.expect(func(v redistest.Value) bool {
			return v.Kind == '*' && len(v.Elems) == 4 && v.Elems[0].Raw == ":0\r\n" && v.Elems[2].Int() > 10_000
		}, args...)
	default:
		l.expect(l.null(), args...)
	}
}

func (l *locker) either(a, b string) string {
	if l.IntN(2) == 0 {
		return a
	}
	return b
}

// granted notes a grant and is its reply.
func (l *locker) granted(s *lockState, owner string) func(redistest.Value) bool {
	if s.owner == "" {
		s.past, s.fence = s.fence, new(int64)
		s.owner, s.mine, s.holds = owner, owner == "", 0
		if s.mine {
			s.owner = "!"
		}
	}
	s.holds++
	holds, fence, past := int64(s.holds), s.fence, s.past
	return func(v redistest.Value) bool {
		if v.Kind != '*' || len(v.Elems) != 4 || v.Elems[3].Int() != holds || owner != "" && v.Elems[1].Text != owner {
			return false
		}
		if valid := v.Elems[2].Int(); valid < 20_000 || valid > 40_000 {
			return false
		}
		n := v.Elems[0].Int()
		if past != nil && n <= *past || *fence != 0 && n != *fence {
			return false
		}
		*fence = n
		return n > 0
	}
}

// unlock gives back, or tries to.
func (l *locker) unlock() {
	name := l.name()
	s := l.at(name)
	owner := []string{"", s.owner, s.owner, "one", "nobody"}[l.IntN(5)]
	if owner == "!" || owner == "?" {
		owner = ""
	}
	args := []string{"UNLOCK", name}
	if owner != "" {
		args = append(args, owner)
	}
	all := l.IntN(4) == 0
	if all {
		args = append(args, "ALL")
	}
	if !l.verb(args...) {
		return
	}
	switch {
	case owner == "" && !s.mine:
		l.expect(func(v redistest.Value) bool { // what this connection had last of the name is repeated
			return v.Raw == ":1\r\n" || v.IsError()
		}, args...)
	case owner == "" || owner == s.owner:
		if s.holds--; all || s.holds == 0 {
			s.owner, s.mine, s.holds = "", false, 0
			l.expect(exactly(":1\r\n"), args...)
		} else {
			l.expect(exactly(":0\r\n"), args...)
		}
	case s.owner == "": // it is repeated if it was the last to be released
		l.expect(func(v redistest.Value) bool { return v.Kind == ':' || refusal("LOCKLOST ")(v) }, args...)
	default:
		l.expect(func(v redistest.Value) bool {
			return v.Kind == ':' || refusal("NOTOWNER ")(v) || refusal("LOCKLOST ")(v)
		}, args...)
	}
}

func (l *locker) renew() {
	name := l.name()
	s := l.at(name)
	args := []string{"RENEW", name, "39s"}
	if s.owner != "" && s.owner != "!" && s.owner != "?" {
		args = append(args, s.owner)
	}
	if !l.verb(args...) {
		return
	}
	if s.mine || len(args) > 3 {
		l.expect(func(v redistest.Value) bool { return v.Kind == ':' && v.Int() > 20_000 && v.Int() <= 39_000 }, args...)
	} else {
		l.expect(func(v redistest.Value) bool { return v.IsError() }, args...)
	}
}

// inspect is a LOCKCTL.
func (l *locker) inspect() {
	name := l.name()
	args := [][]string{{"LOCKCTL", "INFO", name}, {"LOCKCTL", "HELP"}, {"LOCKCTL", "LIST", "MATCH", name}, {"LOCKCTL", "WAITERS", name}, {"LOCKCTL", "WHY", name}, {"lockctl", "nodes"}}[l.IntN(6)]
	if !l.verb(args...) {
		return
	}
	s, null := l.at(name), l.null()
	held, kind := s.owner != "", "*"
	if l.proto == 3 {
		kind = "%"
	}
	switch word := args[1]; {
	case word == "INFO" && held:
		l.expect(func(v redistest.Value) bool {
			return strings.HasPrefix(v.Raw, kind) && v.Raw != "*-1\r\n" && strings.Contains(v.Raw, name)
		}, args...)
	case word == "INFO":
		l.expect(null, args...)
	case word == "nodes":
		l.expect(func(v redistest.Value) bool { return strings.HasPrefix(v.Raw, kind) }, args...)
	default:
		l.expect(func(v redistest.Value) bool { return v.Kind == '*' }, args...)
	}
}

// faulty is a verb that nobody can answer.
func (l *locker) faulty() {
	args := [][]string{
		{"LOCK"}, {"LOCK", "a"}, {"LOCK", "a", "5"}, {"LOCK", "", "30s"}, {"LOCK", "a", "30s", "BOGUS"}, {"LOCK", "a", "30s", "OWNER"}, {"LOCK", "a", "2h"}, {"LOCK", "a", "30s", "WAIT", "-1"},
		{"UNLOCK"}, {"UNLOCK", "a", "me", "FENCE", "x"}, {"RENEW", "a"}, {"RENEW", "a", "30s", "me", "ALL"}, {"LOCKCTL"}, {"LOCKCTL", "NO\r\nSUCH"}, {"LOCKCTL", "INFO"}, {"LOCKCTL", "LIST", "CURSOR", "x"},
		{"LOCK", "a", "30s", "REQ", "1"}, {"LOCK", "a", "30s", "WAIT", "1h"}, {"LOCK", strings.Repeat("n", 65<<10), "30s"},
		{"LOCKALL", "2", "a", "a", "30s"}, {"UNLOCKALL", "3", "a", "b"}, {"RENEWALL", "1", "a", "30s", "me", "FENCE", "1"},
	}[l.IntN(22)]
	if l.verb(args...) {
		l.strung = l.strung || slices.Contains(args, "1h")
		l.expect(func(v redistest.Value) bool { return v.IsError() && !strings.HasPrefix(v.Text, "ERR unknown command") }, args...)
	}
}

// wait is a LOCK that waits for the rival in vain.
func (l *locker) wait() {
	args := []string{"LOCK", rivalName, "40s", "WAIT", fmt.Sprint(1+l.IntN(20), "ms")}
	if l.db == 0 && l.verb(args...) {
		l.strung = true
		l.expect(l.null(), args...)
	}
}

func (l *locker) store() {
	key := fmt.Sprint("k", l.id, l.IntN(3))
	at := fmt.Sprint(l.db, key)
	switch l.IntN(4) {
	case 0:
		if l.ordinary("GET", key) {
			l.expect(l.bulkOrNull(l.values[at]), "GET", key)
		}
	case 1:
		text := strings.Repeat("e", 1+l.IntN(300))
		if l.ordinary("ECHO", text) {
			l.expect(l.bulkOrNull(text), "ECHO", text)
		}
	default:
		value := strings.Repeat("v", 1+l.IntN(3000))
		if l.IntN(50) == 0 {
			value = strings.Repeat("w", 200<<10)
		}
		if l.inTx { // what it comes to depends on the EXEC
			return
		}
		if l.ordinary("SET", key, value) {
			l.values[at] = value
			l.expect(exactly("+OK\r\n"), "SET", key, value)
		}
	}
}

// state changes what the connection is.
func (l *locker) state() {
	switch l.IntN(9) {
	case 0, 1:
		if db := l.IntN(3); !l.inTx && l.ordinary("SELECT", strconv.Itoa(db)) {
			l.db = db
			l.expect(exactly("+OK\r\n"), "SELECT", strconv.Itoa(db))
		}
	case 2:
		if !l.inTx && l.ordinary("MULTI") {
			l.inTx, l.queued, l.spoilt = true, 0, false
			l.expect(exactly("+OK\r\n"), "MULTI")
		}
	case 3:
		l.exec()
	case 4:
		if !l.inTx && !l.listen && !l.off { // a HELLO on a connection that is off says nothing
			proto := 2 + l.IntN(2)
			l.proto = proto
			l.expect(anything, "HELLO", strconv.Itoa(proto))
		}
	case 5:
		if !l.inTx && !l.skip {
			l.reset()
		}
	case 6:
		if !l.inTx && !l.listen && !l.off && !l.skip {
			l.listen, l.raw = true, true
			l.expect(func(v redistest.Value) bool { return v.Kind == '*' && l.proto == 2 || v.Kind == '>' || v.Kind == '*' }, "SUBSCRIBE", "c"+l.id)
		}
	case 7:
		if l.listen {
			off := l.off
			l.listen, l.off, l.skip = false, false, false // CLIENT REPLY does not hold back that it is told, since it is a push
			l.expect(anything, "UNSUBSCRIBE", "c"+l.id)
			l.off = off
		}
	case 8:
		l.reply()
	}
}

func (l *locker) exec() {
	if !l.inTx || l.listen && l.proto == 2 {
		return
	}
	l.inTx = false
	n := l.queued
	if l.spoilt {
		l.expect(refusal("EXECABORT"), "EXEC")
	} else {
		l.expect(func(v redistest.Value) bool { return v.Kind == '*' && len(v.Elems) == n }, "EXEC")
	}
}

// reply is CLIENT REPLY.
func (l *locker) reply() {
	if l.inTx || l.listen && l.proto == 2 {
		return
	}
	l.raw = true
	switch l.IntN(3) {
	case 0:
		l.off, l.skip = false, false
		l.expect(exactly("+OK\r\n"), "CLIENT", "REPLY", "ON")
	case 1:
		l.off, l.skip = true, false
		l.expect(nil, "CLIENT", "REPLY", "OFF")
	default:
		l.skip = true
		l.expect(nil, "CLIENT", "REPLY", "SKIP")
		l.skip = !l.off
	}
}

// burst is what the client sends before it reads again.
func (l *locker) burst() string {
	ways := []func(){l.lock, l.lock, l.unlock, l.unlock, l.renew, l.lockAll, l.releaseAll, l.inspect, l.faulty, l.wait, l.store, l.store, l.state}
	for range 1 + l.IntN(30) {
		ways[l.IntN(len(ways))]()
	}
	return l.send()
}

func (l *locker) send() string {
	text := strings.Join(l.said, "")
	l.said, l.strung = nil, l.strung && l.unread // what is not answered may still wait
	return text
}

// finish makes sure that the last of what is sent is answered.
func (l *locker) finish() string {
	l.reset()
	l.reset()
	return l.send()
}

// reset is answered whatever CLIENT REPLY OFF said, but not what SKIP did.
func (l *locker) reset() {
	skip := l.skip
	l.forget()
	l.skip = skip
	l.expect(exactly("+RESET\r\n"), "RESET")
}
