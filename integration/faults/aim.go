package faults

import (
	"bytes"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/integration/mutants"
	"github.com/lockproxy/lockproxy/scripts"
)

// When an aim is hit, by what has become of the script that it waits for.
const (
	unsent     = "unsent"     // it is not sent, nor is anything else of its batch
	unanswered = "unanswered" // the node runs it, and its answer is lost
	answered   = "answered"   // its answer is on its way
)

// A tap is one link between a proxy and a node which sees what the proxy asks for.
type tap struct {
	net.Listener
	to    string
	armed atomic.Pointer[aim]
	shut  atomic.Bool // nothing gets through, and connections break
}

// An aim waits for a call of a script on one link.
type aim struct {
	calls [][]byte // what an EVALSHA of it begins with, and one of calls, which may have it inside
	when  string
	hit   chan struct{} // closed when a call was seen and when has come
}

// shas are the SHA-1 of the scripts that proxies run, by name: those of this tree, or of
// its mutant with this name.
func shas(mutant string) (map[string]string, error) {
	all := map[string]string{}
	var edited mutants.Mutant
	var err error
	if mutant != "" {
		if edited, err = mutants.Find(mutant); err != nil {
			return nil, err
		}
	}
	for _, s := range scripts.All() {
		if all[s.Name], err = edited.SHA1(s.Name); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// openTap opens one to an address. Its connections end when one of their ends does.
func openTap(to string) (*tap, error) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	t := &tap{Listener: lis, to: to}
	go t.accept()
	return t, nil
}

func (t *tap) accept() {
	for {
		c, err := t.Accept()
		if err != nil {
			return
		}
		s, err := net.Dial("tcp", t.to)
		if err != nil || t.shut.Load() {
			_ = c.Close()
			if err == nil {
				_ = s.Close()
			}
			continue
		}
		l := &tapped{tap: t, proxy: c, node: s}
		go l.asks()
		go l.answers()
	}
}

// A tapped is one connection over a tap.
type tapped struct {
	*tap
	proxy, node net.Conn
	mute        atomic.Bool         // answers are lost
	next        atomic.Pointer[aim] // hit by the next answer
}

func (l *tapped) end() {
	_ = l.proxy.Close()
	_ = l.node.Close()
}

// asks passes on what the proxy says.
func (l *tapped) asks() {
	defer l.end()
	buf := make([]byte, 64<<10)
	for {
		n, err := l.proxy.Read(buf)
		if err != nil || l.shut.Load() {
			return
		}
		a := l.armed.Load()
		called := func(call []byte) bool { return bytes.Contains(buf[:n], call) }
		if a != nil && (!slices.ContainsFunc(a.calls, called) || !l.armed.CompareAndSwap(a, nil)) {
			a = nil
		}
		switch {
		case a == nil:
		case a.when == unsent:
			close(a.hit)
			return
		case a.when == unanswered:
			l.mute.Store(true)
		default:
			l.next.Store(a)
		}
		if _, err := l.node.Write(buf[:n]); err != nil {
			return
		}
		if a != nil && a.when == unanswered {
			time.AfterFunc(time.Millisecond, func() { close(a.hit) }) // the node runs it first
		}
	}
}

// answers passes on what the node says.
func (l *tapped) answers() {
	defer l.end()
	buf := make([]byte, 64<<10)
	for {
		n, err := l.node.Read(buf)
		if err != nil || l.shut.Load() {
			return
		}
		if l.mute.Load() {
			continue
		}
		if _, err := l.proxy.Write(buf[:n]); err != nil {
			return
		}
		if a := l.next.Swap(nil); a != nil {
			close(a.hit)
		}
	}
}

// awaits waits until the script of a fault is called on its link, for a while.
func (w *world) awaits(f fault) (hit bool) {
	t := w.links[f.b][f.a].tap
	a := &aim{when: f.way, hit: make(chan struct{})}
	aimAt := func(script string) { a.calls = append(a.calls, []byte("EVALSHA\r\n$40\r\n"+w.shas[script])) }
	if aimAt(f.script); f.script == "acquire" || f.script == "release" || f.script == "renew" {
		aimAt("calls")
	}
	if !t.armed.CompareAndSwap(nil, a) {
		return false
	}
	select {
	case <-a.hit:
		return true
	case <-time.After(aimsFor):
		return !t.armed.CompareAndSwap(a, nil) // then it is hit at this moment
	}
}

// aimed does harm as soon as a script is called; nothing if none is.
func (w *world) aimed(f fault) error {
	if !w.awaits(f) {
		return nil
	}
	w.began(f)
	switch f.kind {
	case aimedKill:
		return w.killNode(f.a, f.lasts)
	case aimedPause:
		w.nodes[f.a].Pause()
		time.Sleep(f.lasts)
		w.nodes[f.a].Resume()
	case aimedProxy:
		defer w.only(fault{kind: "proxy-pause", a: f.b}.target())()
		w.proxies[f.b].Pause()
		time.Sleep(f.lasts)
		w.proxies[f.b].Resume()
	case aimedCut:
		t := w.links[f.b][f.a].tap
		t.shut.Store(true)
		time.Sleep(f.lasts)
		t.shut.Store(false)
	}
	return nil
}

// forgetInTurn has all nodes forget: the first when it has given or prolonged a lease, each
// of the others as soon as the one before votes again.
func (w *world) forgetInTurn(f fault) error {
	if f.way = answered; !w.awaits(f) {
		return nil
	}
	w.began(f)
	for i := range w.nodes {
		n := (f.a + i) % len(w.nodes)
		if err := w.forget(n, i > 0); err != nil {
			return err
		}
		for end := time.Now().Add(2*w.out + 2*time.Second); time.Now().Before(end) && !w.votes(n); {
			time.Sleep(5 * time.Millisecond)
		}
	}
	return nil
}

// forget kills a node and starts it again with its own record and nothing else, as from an
// old snapshot; when nothing else is done to it, if that is not so already.
func (w *world) forget(n int, alone bool) error {
	if alone {
		defer w.only(fault{kind: "node-kill", a: n}.target())()
	}
	addr := w.nodes[n].Addr()
	record, err := askServer(addr, "DUMP", nodeRecord)
	if err == nil {
		err = w.killNode(n, 0)
	}
	if err != nil || record.IsError() || record.Text == "" { // it forgot a moment ago
		return err
	}
	return tell(addr, "EVAL", "redis.call('FLUSHALL') redis.call('RESTORE', KEYS[1], 0, ARGV[1])", "1", nodeRecord, record.Text)
}

const nodeRecord = "lockproxy:node"

// votes reports whether a node has a record by which it may vote. A node that forgot has
// one that a proxy, or the first script after its start, has changed.
func (w *world) votes(n int) bool {
	v, err := askServer(w.nodes[n].Addr(), "EVAL", mayVote, "1", nodeRecord)
	return err == nil && v.Int() == 1
}

const mayVote = `local r = redis.call('HMGET', KEYS[1], 'id', 'until', 'sync')
local t = redis.call('TIME')
local id = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
return (r[1] == id and r[3] == '1' and tonumber(r[2]) <= t[1] * 1000 + math.floor(t[2] / 1000)) and 1 or 0`
