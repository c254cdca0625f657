package lua

// Compared runs the script, and returns the strings that it compares with shown, which call has shown it.
func (s *Script) Compared(on Version, keys, args []string, shown string, call Caller) []string {
	m := newMachine(on, keys, args, call)
	m.shown = shown
	_, _ = m.run(s.body)
	return m.compared
}

// comparing is what a machine notes of comparisons.
type comparing struct {
	shown    value // nil: nothing is noted
	compared []string
}

// noteCompared notes a string that is compared with the one that was shown.
func (m *machine) noteCompared(a, b value) {
	if a == m.shown {
		a, b = b, a
	}
	if text, isText := a.(string); isText && m.shown != nil && b == m.shown {
		m.compared = append(m.compared, text)
	}
}
