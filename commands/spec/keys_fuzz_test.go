package spec

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"
)

func FuzzKeys(f *testing.F) {
	rnd := rand.New(rand.NewPCG(3, 7))
	for c := range Builtin().All() {
		if c.Flags&MovableKeys != 0 {
			f.Add(bytes.Join(vector(rnd, c), []byte("\n")))
		}
	}
	f.Fuzz(func(t *testing.T, call []byte) {
		args := bytes.Split(call, []byte("\n"))
		c := Builtin().Lookup(args)
		if c == nil {
			return
		}
		keys, ok := c.Keys(args, nil)
		if !ok {
			t.Errorf("keys of %q are not known", args)
		}
		checkRange(t, c, args, keys)
		if !slices.IsSorted(keys) && !slices.Contains(unordered, c.Name) {
			t.Errorf("keys of %q are at %v", args, keys)
		}
		routed, _ := c.Routing(args, nil)
		checkRange(t, c, args, routed)
	})
}

// FuzzParse has the keys of a table that nobody vouches for.
func FuzzParse(f *testing.F) {
	for _, specs := range []string{
		"*2\r\n$5\r\nflags\r\n*1\r\n+incomplete\r\n",
		"*6\r\n+flags\r\n*0\r\n+begin_search\r\n*4\r\n+type\r\n+index\r\n+spec\r\n*2\r\n+index\r\n:1\r\n" +
			"+find_keys\r\n*4\r\n+type\r\n+range\r\n+spec\r\n*6\r\n+lastkey\r\n:-1\r\n+keystep\r\n:2\r\n+limit\r\n:2\r\n",
		"*6\r\n+flags\r\n*1\r\n+not_key\r\n+begin_search\r\n*4\r\n+type\r\n+keyword\r\n+spec\r\n*4\r\n+keyword\r\n+K\r\n+startfrom\r\n:-1\r\n" +
			"+find_keys\r\n*4\r\n+type\r\n+keynum\r\n+spec\r\n*6\r\n+keynumidx\r\n:0\r\n+firstkey\r\n:1\r\n+keystep\r\n:1\r\n",
	} {
		f.Add([]byte("*1\r\n*10\r\n+m\r\n:-2\r\n*1\r\n+module\r\n:0\r\n:0\r\n:0\r\n*0\r\n*0\r\n*1\r\n"+specs+"*0\r\n"), []byte("K\n1\nk"))
	}
	f.Add([]byte("*1\r\n*6\r\n+m\r\n:-2\r\n*0\r\n:1\r\n:-1\r\n:1\r\n"), []byte("a\nb"))
	f.Fuzz(func(t *testing.T, reply, rest []byte) {
		learnt, err := Parse(reply)
		if err != nil {
			return
		}
		for c := range learnt.All() {
			args := append([][]byte{[]byte(c.Name)}, bytes.Split(rest, []byte("\n"))...)
			keys, _ := c.Keys(args, nil)
			checkRange(t, c, args, keys)
			routed, _ := c.Routing(args, nil)
			checkRange(t, c, args, routed)
		}
	})
}

func checkRange(t *testing.T, c *Command, args [][]byte, at []int) {
	t.Helper()
	for _, i := range at {
		if i < 1 || i >= len(args) {
			t.Errorf("%s: keys of %q are at %v", c.Name, args, at)
		}
	}
}

// calls are what a proxy sees most of.
var calls = []string{"GET key", "SET key value", "MGET a b c d e f g h", "XREAD COUNT 1 STREAMS a b 0 0", "EVAL s 2 a b c", "CONFIG GET x"}

func TestKeys_AllocateNothing(t *testing.T) {
	var room [16]int
	for _, call := range calls {
		args := bytes.Fields([]byte(call))
		allocs := testing.AllocsPerRun(100, func() {
			keys, _ := Builtin().Lookup(args).Keys(args, room[:0])
			fmt.Fprint(io.Discard, len(keys))
		})
		if allocs > 0 {
			t.Errorf("%s: %v allocations", call, allocs)
		}
	}
}

func BenchmarkKeys(b *testing.B) {
	var room [16]int
	table := Builtin()
	for _, call := range calls {
		args := bytes.Fields([]byte(call))
		b.Run(string(args[0]), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				table.Lookup(args).Keys(args, room[:0])
			}
		})
	}
}
