package proxy

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// TestGuardParts: commands that are handed out in parts are the same bytes, whatever
// the reads and the sizes of the parts; those in one piece are framed as ever.
func TestGuardParts(t *testing.T) {
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		var in strings.Builder
		var want []string
		for range 20 {
			args := slices.Repeat([]string{strings.Repeat("v\r\n$", rnd.IntN(1+rnd.IntN(30)))}, 1+rnd.IntN(5))
			args[0] = "NAME" + args[0]
			want = append(want, guardArray(args...))
			in.WriteString(guardArray(args...))
			if rnd.IntN(4) == 0 {
				in.WriteString("*0\r\nPING\r\n")
				want = append(want, guardArray("PING"))
			}
		}
		least := 1 + rnd.IntN(60)
		g := newGuard(limits{})
		got, open := []string{}, "" // what came in parts, of the command that has not ended
		parts := 0
		take := func() {
			for {
				name, raw, ok := g.part(least)
				if !ok {
					return
				}
				if named := name != nil && strings.HasPrefix("NAME", string(name[:min(4, len(name))])); named != (open == "") || len(raw) < least && open == "" || len(raw) == 0 {
					t.Fatalf("seed %d: a part of %q, behind %q, with the name %q", seed, raw, open, name)
				}
				if rnd.IntN(2) == 0 {
					return
				}
				open += string(raw)
				parts++
				g.take(raw)
			}
		}
		for rest := []byte(in.String()); len(rest) > 0; {
			n := copy(g.space(), rest[:min(1+rnd.IntN(40), len(rest))])
			g.filled(n)
			rest = rest[n:]
			for {
				cmd, ok, err := g.next()
				if err != nil {
					t.Fatal(err)
				}
				if !ok {
					break
				}
				if cmd.Rest != (open != "") || cmd.Rest != (cmd.Args == nil) {
					t.Fatalf("seed %d: %q behind %q: rest %v, %d arguments", seed, cmd.Raw, open, cmd.Rest, len(cmd.Args))
				}
				got, open = append(got, open+string(cmd.Raw)), ""
			}
			take()
		}
		if !slices.Equal(got, want) || open != "" {
			t.Fatalf("seed %d: got\n%q\nwant\n%q", seed, got, want)
		}
		if parts == 0 {
			t.Errorf("seed %d: nothing was taken in parts", seed)
		}
	}
}

// TestGuardPartsFault: what breaks the protocol breaks it in the middle too.
func TestGuardPartsFault(t *testing.T) {
	g := newGuard(limits{})
	g.filled(copy(g.space(), "*3\r\n$3\r\nSET\r\n$10\r\n01234"))
	g.next()
	name, raw, ok := g.part(1)
	if string(name) != "SET" || string(raw) != "*3\r\n$3\r\nSET\r\n$10\r\n01234" || !ok {
		t.Fatalf("%q, %q, %v", name, raw, ok)
	}
	g.take(raw)
	g.filled(copy(g.space(), "56789\r\n!oops\r\n"))
	if cmd, ok, err := g.next(); err == nil {
		t.Errorf("%v, %v", cmd, ok)
	}
	if _, raw, ok := g.part(1); ok {
		t.Errorf("behind the fault: %q", raw)
	}
}
