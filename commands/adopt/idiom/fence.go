package idiom

import "github.com/lockproxy/lockproxy/commands/adopt/idiom/lua"

// A FenceKey returns the lock whose fence a key is; empty: it is none. Such a key is a counter beside the lock: the script
// that enters a Hash increments it, and its reply tells one acquisition from those before. The engine counts grants by
// itself, so the key is never written.
type FenceKey func(key string) (lock string)

// Granted sets the fence that the call may answer with, that of its grant, and reports whether it may.
func (c *Call) Granted(fence int64) bool {
	c.fence = fence
	return c.fenceOf != nil
}

// onFence runs a command that has a fence key among its keys. isFence is false if it has none.
func (w *world) onFence(name string, args []string) (reply lua.Reply, isFence bool, err error) {
	if w.fenceOf == nil {
		return nil, false, nil
	}
	for _, key := range args[1:] {
		if isFence = w.fenceOf(key) != ""; isFence {
			break
		}
	}
	switch {
	case !isFence:
		return nil, false, nil
	case name != "INCR" || len(args) != 2:
		return nil, true, refusef("%s of the key of a fence", name)
	case w.fenceOf(args[1]) != w.key:
		return nil, true, refusef("INCR of the fence of another lock")
	case w.readOnly:
		return nil, true, refusef("%s in a script that may not write", name)
	case w.fenced:
		return nil, true, refusef("INCR of a fence by more than one")
	}
	w.fenced = true
	return lua.Later{}, true, nil
}

// withFence puts the fence where the reply has it.
func withFence(r lua.Reply, fence int64) lua.Reply {
	switch r := r.(type) {
	case lua.Later:
		return fence
	case []any:
		for i := range r {
			r[i] = withFence(r[i], fence)
		}
	}
	return r
}

// checkFence refuses a run that increments the fence without entering a hash.
func (w *world) checkFence(op Op) error {
	if w.fenced && op.Do != Enter {
		return refusef("INCR of a fence where no hash is entered")
	}
	return nil
}
