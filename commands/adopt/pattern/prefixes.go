package pattern

// Prefixes are literal prefixes of keys, which tell most arguments apart from keys that a pattern may match. The zero value has
// none. It is safe for concurrent use when all have been added.
type Prefixes struct {
	firstBytes [256]bool
	of         [256][]string // by first byte
}

// Add adds a prefix; the empty one is that of every key.
func (p *Prefixes) Add(start string) {
	for b := range p.of {
		if start == "" || start[0] == byte(b) {
			p.firstBytes[b] = true
			p.of[b] = append(p.of[b], start)
		}
	}
}

// May reports whether an argument begins with one of them. It does not allocate, and is inlined.
func (p *Prefixes) May(arg []byte) bool {
	return (len(arg) == 0 || p.firstBytes[arg[0]]) && p.begins(arg)
}

func (p *Prefixes) begins(arg []byte) bool {
	var first byte // of an empty argument: any
	if len(arg) > 0 {
		first = arg[0]
	}
	for _, start := range p.of[first] {
		if len(arg) >= len(start) && string(arg[:len(start)]) == start {
			return true
		}
	}
	return false
}
