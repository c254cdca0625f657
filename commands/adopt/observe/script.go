package observe

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/lockproxy/lockproxy/commands/adopt/idiom"
)

// A shapeID identifies calls of a script that are alike.
type shapeID struct {
	sha        string
	keys, args int
	lock       int // which of the keys and arguments is the lock
}

// A scriptShape is what such calls are for.
type scriptShape struct {
	class idiom.Class
	kind  idiom.Kind // of the lock
	value int        // which argument is the lock's value; -1: none
	why   string
}

// script handles EVAL and its like. It returns the key of the lock; empty: there is none that is followed.
func (t *Tap) script(where Where, db, proto int, words []string) string {
	o := t.o
	if len(words) < 3 {
		return ""
	}
	n, err := strconv.Atoi(words[2])
	if err != nil || n < 0 || n > len(words)-3 {
		return ""
	}
	keys, args := words[3:3+n], words[3+n:]
	name := strings.ToUpper(words[0])
	at := slices.IndexFunc(words[3:min(len(words), 3+maxLooked)], func(w string) bool { return o.follows(db, w) })
	fresh := at < 0
	if fresh && (!o.opt.All || n == 0) {
		if !strings.HasPrefix(name, "EVALSHA") {
			o.know(words[1])
		}
		return ""
	}
	lock := words[3+max(at, 0)]
	var s *idiom.Script
	if strings.HasPrefix(name, "EVALSHA") {
		if s = o.scripts.Find(words[1]); s == nil {
			o.noteUnknown(t.by, db, strings.ToLower(words[1]), lock)
			if fresh {
				return ""
			}
			t.form = formUnknown
			return lock
		}
	} else {
		s = o.know(words[1])
	}
	t.undeclared = !fresh && at >= n
	call, err := s.CallOn(o.dialect(), lock, keys, args, proto, strings.HasSuffix(name, "_RO"), o.fenceOf(db, lock))
	shape := o.shapeOfScript(shapeID{s.SHA, n, len(args), max(at, 0)}, call, err, args)
	if call == nil && err == nil || fresh && !locks(shape.class) {
		return ""
	}
	t.class = shape.class
	if t.form = formOfScript(shape.class); t.form == formOther || shape.class.Shares() {
		t.judges, t.verdict, t.more = true, shape.why, t.form == formOther
		return lock
	}
	p := planOf{class: shape.class, kind: shape.kind, why: shape.why}
	if shape.kind == idiom.Sorted {
		t.form = formSorted
	}
	if shape.value >= 0 && shape.value < len(args) {
		p.value = &args[shape.value]
	}
	t.plan(call, p, o.rule(o.pattern(db, lock)))
	return lock
}

func (o *Observer) dialect() (d idiom.Dialect) {
	if o.opt.Dialect != nil {
		d = o.opt.Dialect()
	}
	return d
}

// fenceOf says of which lock a key is the fence, as the pattern of a lock has it; nil: of none.
func (o *Observer) fenceOf(db int, lock string) idiom.FenceKey {
	p := o.pattern(db, lock)
	if p == nil || p.FenceOf == nil {
		return nil
	}
	return func(key string) string { return p.FenceOf(db, key) }
}

// locks reports whether scripts of a class make their key one that is followed: a cache entry is read and
// removed without a compare as well.
func locks(c idiom.Class) bool {
	switch c {
	case idiom.Unclear, idiom.ReadOnly, idiom.ForceRelease, idiom.ForceExtend, idiom.Overwrite, "":
		return false
	}
	return true
}

// shapeOfScript says what a script is for. It runs it only when it is called like this for the first time.
func (o *Observer) shapeOfScript(id shapeID, call *idiom.Call, refused error, args []string) *scriptShape {
	o.mu.Lock()
	known, ok := o.shapes.Get(id)
	o.mu.Unlock()
	if ok {
		return known
	}
	s := &scriptShape{class: idiom.Unclear, value: -1}
	switch {
	case refused != nil:
		s.why = refused.Error()
	case call != nil:
		var rows idiom.Rows
		rows, s.class = call.Accept(o.opt.Now())
		s.value, s.kind = slices.Index(args, rows[1].State.Value), rows.Kind()
		if s.class == idiom.Unclear {
			s.why = cmp.Or(rows.Why(), o.rule(nil).Allows(s.class).Why)
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.shapes.Add(id, s)
	return s
}

// noteUnknown counts a call of a script whose text is not known.
func (o *Observer) noteUnknown(c *Client, db int, sha, key string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(sha) != 40 {
		return
	}
	r, ok := o.unknown.Get(sha)
	if !ok {
		r = &row{db: db, shape: shapeOf(key), example: key, pattern: o.pattern(db, key), script: sha, forms: 1 << formUnknown}
		o.unknown.Add(sha, r)
	}
	since := o.opt.Now().Sub(o.began)
	r.clients.note(c.ID, since)
	r.guess.client(c)
	r.rate.note(since)
	r.taken++ // calls of it
}
