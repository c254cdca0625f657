// Package members models what lock nodes know of each other's number and of how long leases
// may be, while proxies differ about both. [Sets] changes the list of lock nodes under
// proxies that have any list at any time; [MaxTTL] has proxies with leases of different
// lengths beside nodes that forget. A search goes breadth first as far as it may, so the
// trace it prints is a shortest one. Every rule is a flag; the tests take each away.
package members

// A Result is what a search found.
type Result struct {
	States, Grants int
	Exhausted      bool
	Broken         string   // the promise that does not hold, empty if all do
	Trace          []string // the steps to it
}

// came is how a state was reached.
type came[S comparable] struct {
	from S
	step string
}

// search visits at most limit states. next calls out for every step from s; broken is empty
// unless the step breaks a promise.
func search[S comparable](start S, limit int, next func(s S, out func(to S, step, broken string))) (res Result) {
	seen := map[S]came[S]{start: {}}
	trace := func(s S) (steps []string) {
		for s != start {
			c := seen[s]
			steps = append([]string{c.step}, steps...)
			s = c.from
		}
		return steps
	}
	for layer := []S{start}; len(layer) > 0; {
		var after []S
		for _, s := range layer {
			next(s, func(to S, step, broken string) {
				if res.Broken != "" {
					return
				}
				if broken != "" {
					res.Broken, res.Trace = broken, append(trace(s), step)
				}
				if step[2:] == "granted" {
					res.Grants++
				}
				if _, ok := seen[to]; !ok {
					seen[to] = came[S]{s, step}
					after = append(after, to)
				}
			})
			if res.States = len(seen); res.Broken != "" || res.States > limit {
				return res
			}
		}
		layer = after
	}
	res.Exhausted = true
	return res
}
