package observe

import (
	"bytes"
	"slices"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/commands/adopt/idiom"
)

// replyLength is how much of a reply is looked at.
const replyLength = 16

// An aim is what a command is meant to do to its key.
type aim uint8

const (
	toRead aim = iota // or nothing that is known
	toTake
	toRelease
	toExtend
)

// A Tap is a command on a key that is followed, whose reply has not come yet.
type Tap struct {
	// What was said.
	o       *Observer
	by      *Client
	key     *key
	decided bool // by the lock nodes
	form    form
	class   idiom.Class
	value   uint64 // its hash
	sign    sign   // of the value
	ttl     time.Duration

	// What it is to do, and how that is told from the reply.
	aim   aim
	force bool // it does not compare the value
	setNX bool
	done  []byte // how its reply begins, if it has done it
	begun bool   // done is how the reply begins, not all of it: the lock's fence follows
	same  bool   // it begins the same if it has not
	knows bool   // it has done it, whatever the reply is

	// What adoption would say.
	judges     bool   // verdict counts
	uncompared string // the verdict on a call that does not compare the value; empty: it does, or may
	word       string // of the pattern, with which verdict is right; empty: it needs none
	verdict    string // why it would be refused; empty: it would not
	more       bool   // it is a script that is refused
	undeclared bool   // its key is none of the script's keys

	finished bool // the reply has begun
}

// Reply is given the beginning of the reply; for a command that the lock nodes have decided, all of it. It may be called
// on any goroutine.
func (t *Tap) Reply(begin []byte) {
	o := t.o
	now := o.opt.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	if t.finished || bytes.HasPrefix(begin, []byte("-MOVED ")) || bytes.HasPrefix(begin, []byte("-ASK ")) {
		return
	}
	t.finished = true
	k := t.key
	k.judge(now)
	switch {
	case t.decided && bytes.HasPrefix(begin, []byte("-ADOPTREFUSED ")):
		k.row.refuse(whyOf(string(begin), k.name))
		return
	case t.decided && bytes.HasPrefix(begin, []byte("-NOQUORUM ")):
		k.row.noQuorum++
		return
	case t.decided:
		k.row.allow("")
	case t.judges && t.verdict != "":
		k.row.refuse(t.verdict)
	case t.judges:
		k.row.allow(t.word)
	}
	if len(begin) == 0 || begin[0] == '-' {
		return
	}
	switch did := t.did(begin, now); {
	case t.aim == toTake && did && k.last.held(now) && k.last.value == t.value && k.last.by == t.by && t.form != formSetNX && t.form != formSETNX:
		k.extended(t, now) // acquire or extend
	case t.aim == toTake && did:
		k.granted(t, now, o.began)
	case t.aim == toTake:
		k.refused(t, now)
	case t.aim == toRelease && did:
		k.released(t, now)
	case t.aim == toExtend && did:
		k.extended(t, now)
	case t.aim != toRead:
		k.missed(t, now)
	}
}

// did reports whether a command has done what it is for: its reply tells or, if that is the same in both cases, what is
// known of the lock.
func (t *Tap) did(begin []byte, now time.Time) bool {
	if t.knows || !t.saysDone(begin) {
		return t.knows
	}
	if !t.same {
		return true
	}
	held := t.key.last.held(now)
	if t.aim == toTake {
		return !held
	}
	return held && (t.force || t.key.last.value == t.value)
}

// saysDone reports whether a reply begins as that of a command which has done what it is for.
func (t *Tap) saysDone(begin []byte) bool {
	if t.begun {
		return bytes.HasPrefix(begin, head(t.done))
	}
	return bytes.Equal(head(begin), head(t.done))
}

// allow notes a call that would be adopted, given that word of the pattern.
func (r *row) allow(word string) {
	r.allowed++
	if word != "" {
		r.word = word
	}
}

func (r *row) refuse(why string) {
	r.refused++
	r.why = why
}

// whyOf is the reason in an error of adoption: ADOPTREFUSED COMMAND key: reason; adopted by "pattern".
func whyOf(text, key string) string {
	text = strings.TrimSpace(strings.TrimPrefix(text, "-ADOPTREFUSED "))
	if at := strings.LastIndex(text, "; adopted by "); at >= 0 {
		text = text[:at]
	}
	if _, why, ok := strings.Cut(text, " "+key+": "); ok {
		return why
	}
	return text
}

// look makes the Tap of a command that may be on a key that is followed, or is to be.
func (o *Observer) look(c *Client, where Where, db, proto int, k kind, args [][]byte) *Tap {
	words := make([]string, len(args))
	for i, a := range args {
		words[i] = string(a)
	}
	t := &Tap{o: o, by: c, decided: where == Decided, class: idiom.Unclear}
	var name string
	if k == script {
		name = t.script(where, db, proto, words)
	} else {
		name = t.plain(db, proto, k, words)
	}
	if name == "" {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	t.key = o.follow(db, name)
	r, now := t.key.row, o.opt.Now()
	t.key.judge(now)
	r.forms |= 1 << t.form
	if t.form == formExpire && t.key.last.endless && t.key.last.by == c {
		r.forms |= 1 << formThenExpire
	}
	r.clients.note(c.ID, now.Sub(o.began))
	r.guess.client(c)
	r.calls[t.class]++
	t.notePlan(c, name)
	switch where {
	case InMulti:
		t.queued(c)
		return nil
	case Uncounted:
		o.unseen.Uncounted++
		return nil
	}
	return t
}

// notePlan notes the hazards that can be seen without the reply.
func (t *Tap) notePlan(c *Client, name string) {
	r := t.key.row
	if t.form == formWatch {
		c.watched = name
		r.hazard(insideMulti, name)
	}
	if t.more {
		r.hazard(scriptDoesMore, name)
	}
	if t.undeclared {
		r.hazard(keysNotDeclared, name)
	}
	if t.form == formRead && c.reads.tracks(name) {
		r.hazard(trackedReads, name)
	}
	if t.aim != toTake {
		return
	}
	switch o := t.o; {
	case t.ttl == idiom.Forever:
	case t.ttl > o.opt.MaxTTL:
		r.hazard(overMaxTTL, name)
	case t.ttl < o.opt.MinTTL:
		r.hazard(underMinTTL, name)
	}
}

// follow returns a key, from now on one that is followed.
func (o *Observer) follow(db int, name string) *key {
	hash := o.hash(db, []byte(name))
	if k, ok := o.keys.Get(hash); ok {
		o.rows.Get(rowID{db, k.row.shape}) // it is used
		return k
	}
	id := rowID{db, shapeOf(name)}
	r, ok := o.rows.Get(id)
	if !ok {
		r = &row{db: db, shape: id.shape, example: name, pattern: o.pattern(db, name), calls: map[idiom.Class]int64{}}
		o.rows.Add(id, r)
	}
	k := &key{db: db, name: name, hash: hash, row: r}
	o.keys.Add(hash, k)
	o.slot(hash).Add(1)
	for _, s := range o.waiting {
		if s.of(db) && s.matches(name) {
			r.hazard(keyspaceEvents, name)
		}
	}
	return k
}

// forget is called when a key is no longer followed.
func (o *Observer) forget(hash uint64, k *key) {
	o.slot(hash).Add(-1)
	k.judge(o.opt.Now())
}

// plain handles a command that runs no script. It returns its key; empty: there is none that is followed.
func (t *Tap) plain(db, proto int, k kind, words []string) string {
	o, name := t.o, words[1]
	if !t.decided && !(o.opt.All && (k == setNX || k == set && hasNX(words))) {
		if k == several {
			name = o.firstFollowed(db, words[1:])
		} else if !o.follows(db, name) {
			name = ""
		}
	}
	command := strings.ToUpper(words[0])
	if name == "" || noKeys[command] {
		return ""
	}
	t.judges = true
	if command == "WATCH" && len(words) == 2 {
		t.form = formWatch
		return name
	}
	if k == several && len(words) > 2 {
		if t.form, t.verdict = formOther, "it has other keys as well"; command == "WATCH" {
			t.form = formWatch
		}
		return name
	}
	rule, value := o.rule(o.pattern(db, name)), valueOf(command, words)
	if unit := o.deadline(command, value); rule.Deadlines == idiom.NoDeadlines && unit != idiom.NoDeadlines && !t.decided {
		rule.Deadlines, t.word = unit, "timestamps="+string(unit)
	}
	call, class, err := rule.Plain(words, proto)
	if err != nil {
		t.form, t.verdict = formOther, err.Error()
		return name
	}
	call.Speak(o.dialect())
	if t.form = formOf(command, words); rule.Deadlines != idiom.NoDeadlines && (command == "SETNX" || command == "GETSET") {
		t.form = formDeadline
	}
	t.setNX = t.form == formSETNX
	t.plan(call, planOf{class: class, value: value}, rule)
	return name
}

// deadline is the unit of a value that says when the lock ends; NoDeadlines: it seems to be none.
func (o *Observer) deadline(command string, value *string) idiom.Unit {
	if value == nil || command != "SETNX" && command != "GETSET" {
		return idiom.NoDeadlines
	}
	return idiom.Looks(*value, o.opt.Now())
}

// noKeys are commands whose first argument is no key, though it may look like one.
var noKeys = map[string]bool{"PUBLISH": true, "SPUBLISH": true, "UNSUBSCRIBE": true, "PUNSUBSCRIBE": true, "SSUBSCRIBE": true,
	"SUNSUBSCRIBE": true, "ECHO": true, "PING": true, "AUTH": true, "SELECT": true, "SCAN": true, "KEYS": true, "CONFIG": true, "OBJECT": true}

// valueOf is the argument that is the lock's value; nil: there is none.
func valueOf(command string, words []string) *string {
	switch {
	case command == "SET" && formOf(command, words) == formSetIfEq:
		at := slices.IndexFunc(words[3:], func(w string) bool { return strings.EqualFold(w, "IFEQ") }) + 4
		return &words[min(at, len(words)-1)]
	case len(words) > 2 && command == "DELIFEQ":
		return &words[2]
	case len(words) > 2 && (command == "SET" || command == "SETNX" || command == "GETSET" || strings.HasPrefix(command, "HSET") || command == "HINCRBY" || command == "HDEL"):
		return &words[2]
	case len(words) > 3 && (command == "SETEX" || command == "PSETEX" || command == "DELEX"):
		return &words[3]
	}
	return nil
}

func (o *Observer) firstFollowed(db int, words []string) string {
	for _, w := range words[:min(len(words), maxLooked)] {
		if o.follows(db, w) {
			return w
		}
	}
	return ""
}

// rule is what an operator has said by a pattern; nil: the defaults.
func (o *Observer) rule(p *Pattern) idiom.Rule {
	r := idiom.Rule{As: idiom.Usual, NoExpiry: idiom.Forever, MinTTL: o.opt.MinTTL, MaxTTL: o.opt.MaxTTL}
	if p != nil {
		r.As, r.NoExpiry, r.Deadlines = p.As, p.NoExpiry, p.Deadlines
	}
	return r
}

// A planOf is what is known of a call without running it.
type planOf struct {
	class idiom.Class
	kind  idiom.Kind // of the lock, if it is Sorted
	value *string    // the lock's value, or field; nil: the call has none
	why   string     // it is refused
}

// mine is the lock as the caller has it.
func (p *planOf) mine(left time.Duration) idiom.State {
	mine := idiom.State{Kind: idiom.String, Left: left}
	switch {
	case isHash(p.class):
		mine.Kind, mine.Count = idiom.Hash, 1
	case p.kind == idiom.Sorted:
		mine.Kind = idiom.Sorted
	}
	if p.value != nil {
		mine.Value = *p.value
	}
	return mine
}

// plan finds out what a call is to do, and which reply tells that it has.
func (t *Tap) plan(call *idiom.Call, p planOf, rule idiom.Rule) {
	t.judges, t.verdict, t.class = true, p.why, p.class
	if refused := rule.Allows(p.class); refused != nil {
		t.uncompared = refused.Why
		defer t.refuse(refused.Why) // behind what is refused whether it compares or not
	}
	if p.value != nil {
		t.value, t.sign = t.o.hash(0, []byte(*p.value)), signOf(*p.value)
	}
	mine := p.mine(t.o.opt.MaxTTL)
	before, otherwise := t.takeAim(mine)
	if t.aim == toRead || t.takeOver(t.by.did, rule) {
		return
	}
	now := t.o.opt.Now()
	did, err := call.Run(before, now)
	if err == nil && did.Op.Do == idiom.Nothing { // as SET XX of a key that is not there
		if p.value == nil {
			t.aim = toRead
			return
		}
		t.aim, before, otherwise = toExtend, mine, idiom.State{}
		did, err = call.Run(before, now)
	}
	if err != nil {
		t.aim = toRead
		t.refuse(err.Error())
		return
	}
	if did.Op.Do == idiom.Release { // an end that is not positive
		t.aim = toRelease
	}
	t.done, t.ttl = did.Reply, did.Op.TTL
	t.judgeTTL(did.Op, rule)
	if call.Granted(1) {
		if next, err := call.Run(before, now); err == nil && !bytes.Equal(next.Reply, did.Reply) {
			t.done, t.begun = commonBeginning(did.Reply, next.Reply), true
		}
	}
	if not, err := call.Run(otherwise, now); err == nil {
		t.same = t.saysDone(not.Reply)
	}
}

// takeAim notes what a call of the class is meant to do. before is a state of the lock in which it does that, and otherwise
// one in which it does not; mine is the lock as the caller has it.
func (t *Tap) takeAim(mine idiom.State) (before, otherwise idiom.State) {
	others := mine
	others.Value = "\x00another"
	switch t.class {
	case idiom.ReleaseOwn, idiom.ReentrantRelease, idiom.ForceRelease:
		t.aim = toRelease
	case idiom.ExtendOwn, idiom.ReentrantExtend, idiom.ForceExtend:
		t.aim = toExtend
	default:
		if t.class.Acquires() {
			t.aim = toTake
		}
		return idiom.State{}, others
	}
	if t.force = t.class == idiom.ForceRelease || t.class == idiom.ForceExtend; t.force {
		return mine, idiom.State{}
	}
	return mine, others
}

func commonBeginning(a, b []byte) []byte {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return a[:n]
}

// takeOver notes what the lock nodes have done for the call, so that it need not be run to read that from its reply. It
// reports false if only the reply tells what became of the caller's lock.
func (t *Tap) takeOver(op idiom.Op, rule idiom.Rule) bool {
	switch op.Do {
	case idiom.Take, idiom.Enter, idiom.Replace:
		t.knows = t.aim == toTake
	case idiom.Renew:
		if t.class == idiom.Acquire { // as SET XX
			t.aim = toExtend
		}
		t.knows = t.aim == toExtend || t.class == idiom.AcquireOrExtend
	case idiom.Release:
		if t.aim == toExtend { // to an end that is not positive
			t.aim = toRelease
		}
		t.knows = t.aim == toRelease
	}
	if t.knows {
		t.ttl = op.TTL
		t.judgeTTL(op, rule)
	}
	return t.knows
}

func head(reply []byte) []byte { return reply[:min(len(reply), replyLength)] }

func isHash(c idiom.Class) bool {
	return c == idiom.ReentrantAcquire || c == idiom.ReentrantRelease || c == idiom.ReentrantExtend
}

// judgeTTL refuses a call whose ttl adoption would refuse.
func (t *Tap) judgeTTL(op idiom.Op, rule idiom.Rule) {
	kind := idiom.String
	if isHash(t.class) {
		kind = idiom.Hash
	}
	if op.Do == idiom.Take || op.Do == idiom.Renew || op.Do == idiom.Enter || op.Do == idiom.Replace {
		if _, refused := rule.Lease(kind, op.TTL); refused != nil {
			t.refuse(refused.Why)
		}
	}
}

// refuse notes why a call would be refused, unless there is a reason already.
func (t *Tap) refuse(why string) {
	if t.verdict == "" {
		t.verdict = why
	}
}
