package main

import "fmt"

// times is a state of the world of times, in ticks.
type timesState struct {
	left     [2]uint8 // for which a name is kept by another at most; 0: it is free
	asked    bool     // in this tick
	refusals uint8    // at most 3
	intent   uint8    // for which it lasts
	pause    uint8    // for which none is left after it
	long     uint8    // the next one
	granted  bool
}

// What is done in the world of times.
const (
	ask = iota
	tick
	take = -1 // by another
	give = -2
)

func (c *Config) times() world[timesState] {
	return world[timesState]{
		initial: timesState{long: 1},
		next:    c.nextInTime,
		done:    func(s timesState) bool { return s.granted },
		describe: func(s timesState) string {
			return fmt.Sprintf("names kept for %v, %d refusals, intent for %d, none for %d then", s.left, s.refusals, s.intent, s.pause)
		},
		name: func(action int) string {
			return map[int]string{ask: "it asks", tick: "time passes", take: "another takes a name", give: "a name is given back"}[action]
		},
	}
}

func (c *Config) nextInTime(s timesState, out func(timesState, int)) {
	for n := range s.left {
		t := s
		if s.left[n] > 0 {
			t.left[n] = 0
			out(t, give)
		} else if s.intent == 0 {
			t.left[n] = uint8(c.Hold)
			out(t, take)
		}
	}
	t := s
	if s.asked {
		t.asked = false
		for n := range t.left {
			t.left[n] -= min(t.left[n], 1)
		}
		if t.intent -= min(s.intent, 1); s.intent == 0 {
			t.pause -= min(s.pause, 1)
		}
		out(t, tick)
		return
	}
	if s.left[0] == 0 && s.left[1] == 0 {
		out(timesState{granted: true}, ask)
		return
	}
	t.asked = true
	t.refusals = min(s.refusals+1, 3)
	if c.Leave && t.refusals == 3 && s.intent == 0 && s.pause == 0 {
		t.intent, t.pause = s.long, 3*s.long
		if c.Longer {
			t.long = min(2*s.long, uint8(c.Longest))
		}
	}
	out(t, ask)
}
