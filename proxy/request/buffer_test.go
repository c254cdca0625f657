package request

import (
	"slices"
	"strings"
	"testing"
)

// As many arguments as there may be, and a byte at a time: with anything
// quadratic this test would not end.
func TestParser_IsLinear(t *testing.T) {
	in := []byte("*1048576\r\n" + strings.Repeat("$0\r\n\r\n", 1<<20))
	for name, size := range map[string]func() int{"bytes": byteWise, "packets": func() int { return 1400 }} {
		count := 0
		err := feed(New(Limits{}.Rules()), in, size, func(cmd Request) { count += len(cmd.Args) })
		if err != nil || count != 1<<20 {
			t.Errorf("%s: %d arguments, %v", name, count, err)
		}
	}
	var lines int
	in = []byte(strings.Repeat("PING\n", 100_000) + strings.Repeat("\n", 100_000))
	if err := feed(New(Limits{}.Rules()), in, atOnce, func(Request) { lines++ }); err != nil || lines != 100_000 {
		t.Errorf("%d lines, %v", lines, err)
	}
}

// Announcements cost nothing; what arrives costs at most four times itself, and
// is given back.
func TestParser_MemoryFollowsInput(t *testing.T) {
	for _, in := range []string{"*1048576\r\n$536870912\r\nabc", "*1\r\n$536870912\r\n", "*2\r\n$4\r\nECHO\r\n$536870912\r\nx", "*500\r\n" + strings.Repeat("$0\r\n\r\n", 499) + "$9\r\nabcdef"} {
		for name, size := range map[string]func() int{"at once": atOnce, "byte by byte": byteWise} {
			g := New(Limits{}.Rules())
			if lines, err := requestLines(g, in, size); err != nil || len(lines) > 0 {
				t.Fatalf("%.50q: %q, %v", in, lines, err)
			}
			if space := g.Space(); len(space) > maxBuffer || len(g.buf) > maxBuffer || cap(g.args) > minArgs {
				t.Errorf("%.50q %s: %d bytes to read into, room for %d arguments", in, name, len(space), cap(g.args))
			}
		}
	}
	g := New(Limits{}.Rules())
	in, arrived := []byte(array("SET", "k", strings.Repeat("v", 10<<20))), 0
	for arrived < len(in) {
		if buf := g.Space(); len(g.buf) > max(4*arrived, maxBuffer) || len(g.buf) > max(len(in), maxBuffer) {
			t.Fatalf("a buffer of %d for %d of %d bytes", len(g.buf), arrived, len(in))
		} else {
			n := copy(buf, in[arrived:])
			g.Filled(n)
			arrived += n
		}
		if _, ok, err := g.Next(); err != nil || ok != (arrived == len(in)) {
			t.Fatalf("at %d: %v, %v", arrived, ok, err)
		}
	}
	if g.Space(); len(g.buf) > maxBuffer {
		t.Errorf("keeps a buffer of %d", len(g.buf))
	}
	for _, arg := range g.args[:cap(g.args)] {
		if cap(arg) > maxBuffer {
			t.Errorf("keeps an argument in a buffer of %d", cap(arg))
		}
	}
	for range 10 * calmReads {
		g.Filled(copy(g.Space(), "*0\r\n"))
		g.Next()
	}
	if g.Space(); len(g.buf) != minBuffer {
		t.Errorf("idle with a buffer of %d", len(g.buf))
	}
}

// Each of many arguments announces but a little more than is there; the buffer
// must still grow by a share of itself, or they would all be moved each time.
func TestParser_MovesBufferSeldom(t *testing.T) {
	args := slices.Repeat([]string{strings.Repeat("v", 100_000)}, 500)
	g, moves := New(Limits{}.Rules()), 0
	for in := []byte(array(args...)); len(in) > 0; {
		var before *byte
		if len(g.buf) > 0 {
			before = &g.buf[0]
		}
		buf := g.Space()
		if before != &g.buf[0] {
			moves++
		}
		n := copy(buf, in)
		g.Filled(n)
		in = in[n:]
		if _, ok, err := g.Next(); err != nil || ok != (len(in) == 0) {
			t.Fatalf("%d bytes to go: %v, %v", len(in), ok, err)
		}
	}
	if moves > 25 {
		t.Errorf("moved %d times", moves)
	}
}

// TestParser_ReleaseGivesMemoryBack: who says nothing has no memory for what it says, and who has said a
// part of a command keeps it.
func TestParser_ReleaseGivesMemoryBack(t *testing.T) {
	g := New(Limits{}.Rules())
	for range 3 {
		g.Filled(copy(g.Space(), "*1\r\n$4\r\nPI"))
		if _, ok, err := g.Next(); ok || err != nil {
			t.Fatal(ok, err)
		}
		if g.Release(); g.buf == nil {
			t.Fatal("half a command is lost")
		}
		g.Filled(copy(g.Space(), "NG\r\n"))
		if cmd, ok, err := g.Next(); !ok || err != nil || string(cmd.Args[0]) != "PING" {
			t.Fatal(cmd, ok, err)
		}
		if g.Release(); g.buf != nil || g.args != nil {
			t.Errorf("%d bytes and %d slots while nothing comes", len(g.buf), cap(g.args))
		}
	}
}
