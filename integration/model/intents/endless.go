package main

import (
	"slices"

	"github.com/lockproxy/lockproxy/integration/model/explore"
)

// A world is what may happen, for endless.
type world[S comparable] struct {
	initial S
	// next calls out with every state one step away. What is done has an action; whatever may be done from some time on is done some
	// time, except for actions below 0.
	next     func(s S, out func(t S, action int))
	done     func(S) bool // the waiting is over
	describe func(S) string
	name     func(action int) string
}

type edge struct{ to, action int }

// graph is a world's states, with the first step that led to each.
type graph[S comparable] struct {
	world[S]
	states []S
	edges  [][]edge
	from   []edge // of to: the state that it was reached from
}

// endless looks for a way to go on forever, among at most limit states. What it finds is a shortest way to where that begins, and then one round.
func endless[S comparable](w world[S], limit int) explore.Result {
	g := graph[S]{world: w, states: []S{w.initial}, edges: [][]edge{nil}, from: []edge{{-1, 0}}}
	known := map[S]int{w.initial: 0}
	res := explore.Result{Counts: map[string]int{}}
	for i := 0; i < len(g.states); i++ {
		if len(g.states) > limit {
			res.States = len(g.states)
			return res
		}
		if w.done(g.states[i]) {
			continue
		}
		w.next(g.states[i], func(t S, action int) {
			j, ok := known[t]
			if !ok {
				j = len(g.states)
				known[t] = j
				g.states, g.edges, g.from = append(g.states, t), append(g.edges, nil), append(g.from, edge{i, action})
			}
			g.edges[i] = append(g.edges[i], edge{j, action})
			res.Transitions++
			res.Counts[w.name(action)]++
		})
	}
	res.States, res.Exhausted = len(g.states), true
	for _, all := range g.components() {
		if walk := g.fair(all); walk != nil && !w.done(g.states[all[0]]) {
			res.Broken, res.Trace = "E: it may wait forever", g.trace(walk)
			break
		}
	}
	return res
}

// components are the sets of states that can all be reached from each other, by Tarjan.
func (g *graph[S]) components() (all [][]int) {
	index, low := make([]int, len(g.states)), make([]int, len(g.states))
	on, stack, n := make([]bool, len(g.states)), []int(nil), 0
	type frame struct{ v, e int }
	for root := range g.states {
		if index[root] != 0 {
			continue
		}
		for calls := []frame{{root, 0}}; len(calls) > 0; {
			f := &calls[len(calls)-1]
			v := f.v
			if f.e == 0 && index[v] == 0 {
				n++
				index[v], low[v], on[v] = n, n, true
				stack = append(stack, v)
			}
			if f.e < len(g.edges[v]) {
				to := g.edges[v][f.e].to
				f.e++
				if index[to] == 0 {
					calls = append(calls, frame{to, 0})
				} else if on[to] {
					low[v] = min(low[v], index[to])
				}
				continue
			}
			if calls = calls[:len(calls)-1]; len(calls) > 0 {
				up := calls[len(calls)-1].v
				low[up] = min(low[up], low[v])
			}
			if low[v] == index[v] {
				at := slices.Index(stack, v)
				for _, u := range stack[at:] {
					on[u] = false
				}
				all = append(all, slices.Clone(stack[at:]))
				stack = stack[:at]
			}
		}
	}
	return all
}

// fair returns a round through states that can all be reached from each other, in which each action is done, or cannot be done at some time.
// nil: there is none. No step at all is one, too.
func (g *graph[S]) fair(all []int) (walk []edge) {
	in := make(map[int]bool, len(all))
	for _, v := range all {
		in[v] = true
	}
	may := map[int]int{} // in how many of the states an action may be done
	does := map[int]edge{}
	for _, v := range all {
		seen := map[int]bool{}
		for _, e := range g.edges[v] {
			if !seen[e.action] {
				seen[e.action] = true
				may[e.action]++
			}
			if in[e.to] {
				does[e.action] = edge{v, e.to}
			}
		}
	}
	var must []int
	for action, n := range may {
		if action < 0 || n < len(all) {
			continue
		}
		if _, ok := does[action]; !ok {
			return nil
		}
		must = append(must, action)
	}
	if len(all) == 1 && len(does) == 0 && len(may) > 0 {
		return nil // it is left, by an action that need not be done
	}
	slices.Sort(must)
	start := slices.MinFunc(all, func(a, b int) int { return a - b })
	walk = []edge{{start, 0}}
	for _, action := range must {
		walk = g.walk(walk, in, func(v int) bool { return v == does[action].to })
		walk = append(walk, edge{does[action].action, action}) // edge{from, to} was stored there
	}
	for action, n := range may { // where the others cannot be done
		if action >= 0 && n < len(all) {
			walk = g.walk(walk, in, func(v int) bool {
				return !slices.ContainsFunc(g.edges[v], func(e edge) bool { return e.action == action })
			})
		}
	}
	return g.walk(walk, in, func(v int) bool { return v == start })
}

// walk goes on by a shortest way within a set to a state for which there is true.
func (g *graph[S]) walk(walk []edge, in map[int]bool, there func(v int) bool) []edge {
	start := walk[len(walk)-1].to
	if there(start) {
		return walk
	}
	from := map[int]edge{start: {-1, 0}}
	for queue := []int{start}; len(queue) > 0; queue = queue[1:] {
		for _, e := range g.edges[queue[0]] {
			if _, ok := from[e.to]; ok || !in[e.to] {
				continue
			}
			from[e.to] = edge{queue[0], e.action}
			if there(e.to) {
				var back []edge
				for v := e.to; v != start; v = from[v].to {
					back = append(back, edge{v, from[v].action})
				}
				slices.Reverse(back)
				return append(walk, back...)
			}
			queue = append(queue, e.to)
		}
	}
	return walk
}

func (g *graph[S]) trace(walk []edge) (lines []string) {
	for v := walk[0].to; v >= 0; v = g.from[v].to {
		what := "start"
		if g.from[v].to >= 0 {
			what = g.name(g.from[v].action)
		}
		lines = append(lines, what+": "+g.describe(g.states[v]))
	}
	slices.Reverse(lines)
	lines = append(lines, "and then, again and again:")
	for _, e := range walk[1:] {
		lines = append(lines, g.name(e.action)+": "+g.describe(g.states[e.to]))
	}
	return lines
}
