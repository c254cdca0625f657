package request

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// Commands that are handed out in parts are the same bytes, whatever the reads and the
// sizes of the parts; those in one piece are framed as ever.
func TestParser_PartsAreTheSameBytes(t *testing.T) {
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		var in strings.Builder
		var want []string
		for range 20 {
			args := slices.Repeat([]string{strings.Repeat("v\r\n$", rnd.IntN(1+rnd.IntN(30)))}, 1+rnd.IntN(5))
			args[0] = "NAME" + args[0]
			want = append(want, array(args...))
			in.WriteString(array(args...))
			if rnd.IntN(4) == 0 {
				in.WriteString("*0\r\nPING\r\n")
				want = append(want, array("PING"))
			}
		}
		least := 1 + rnd.IntN(60)
		g := New(Limits{})
		got, open := []string{}, "" // what came in parts, of the command that has not ended
		parts := 0
		take := func() {
			for {
				name, raw, ok := g.Part(least)
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
				g.Take(raw)
			}
		}
		for rest := []byte(in.String()); len(rest) > 0; {
			n := copy(g.Space(), rest[:min(1+rnd.IntN(40), len(rest))])
			g.Filled(n)
			rest = rest[n:]
			for {
				cmd, ok, err := g.Next()
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

// What breaks the protocol breaks it in the middle too.
func TestParser_FaultBehindPart(t *testing.T) {
	g := New(Limits{})
	g.Filled(copy(g.Space(), "*3\r\n$3\r\nSET\r\n$10\r\n01234"))
	g.Next()
	name, raw, ok := g.Part(1)
	if string(name) != "SET" || string(raw) != "*3\r\n$3\r\nSET\r\n$10\r\n01234" || !ok {
		t.Fatalf("%q, %q, %v", name, raw, ok)
	}
	g.Take(raw)
	g.Filled(copy(g.Space(), "56789\r\n!oops\r\n"))
	if cmd, ok, err := g.Next(); err == nil {
		t.Errorf("%v, %v", cmd, ok)
	}
	if _, raw, ok := g.Part(1); ok {
		t.Errorf("behind the fault: %q", raw)
	}
}
