package request

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// A partReader takes what it reads in parts, at random.
type partReader struct {
	*Parser
	rnd   *rand.Rand
	least int      // of a first part
	got   []string // requests, whole again
	begun string   // what was taken of the one that has not ended
	parts int      // taken
}

// requests takes the requests that have arrived in whole.
func (r *partReader) requests(t *testing.T) {
	t.Helper()
	for {
		req, ok, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return
		}
		if req.Rest != (r.begun != "") || req.Rest != (req.Args == nil) {
			t.Fatalf("%q behind %q: rest %v, %d arguments", req.Raw, r.begun, req.Rest, len(req.Args))
		}
		r.got, r.begun = append(r.got, r.begun+string(req.Raw)), ""
	}
}

// part may take a part of a request whose first argument begins with NAME.
func (r *partReader) part(t *testing.T) {
	t.Helper()
	name, raw, ok := r.Part(r.least)
	if !ok {
		return
	}
	named := name != nil && strings.HasPrefix("NAME", string(name[:min(4, len(name))]))
	if named != (r.begun == "") || len(raw) < r.least && r.begun == "" || len(raw) == 0 {
		t.Fatalf("a part of %q, behind %q, with the name %q", raw, r.begun, name)
	}
	if r.rnd.IntN(2) == 0 {
		r.begun += string(raw)
		r.parts++
		r.Take(raw)
	}
}

// Requests that are handed out in parts are the same bytes, whatever the reads and the
// sizes of the parts; those in one piece are as ever.
func TestParser_PartsAreTheSameBytes(t *testing.T) {
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		in, want := namedRequests(rnd)
		r := &partReader{Parser: New(Limits{}.Rules()), rnd: rnd, least: 1 + rnd.IntN(60)}
		for len(in) > 0 {
			n := copy(r.Space(), in[:min(1+rnd.IntN(40), len(in))])
			r.Filled(n)
			in = in[n:]
			r.requests(t)
			r.part(t)
		}
		if !slices.Equal(r.got, want) || r.begun != "" {
			t.Fatalf("seed %d: got\n%q\nwant\n%q", seed, r.got, want)
		}
		if r.parts == 0 {
			t.Errorf("seed %d: nothing was taken in parts", seed)
		}
	}
}

// namedRequests are random requests whose first argument begins with NAME, and PINGs.
func namedRequests(rnd *rand.Rand) (in []byte, want []string) {
	for range 20 {
		args := slices.Repeat([]string{strings.Repeat("v\r\n$", rnd.IntN(1+rnd.IntN(30)))}, 1+rnd.IntN(5))
		args[0] = "NAME" + args[0]
		want = append(want, array(args...))
		in = append(in, array(args...)...)
		if rnd.IntN(4) == 0 {
			in = append(in, "*0\r\nPING\r\n"...)
			want = append(want, array("PING"))
		}
	}
	return in, want
}

// What breaks the protocol breaks it in the middle too.
func TestParser_FaultBehindPart(t *testing.T) {
	g := New(Limits{}.Rules())
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
