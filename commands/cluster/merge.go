package cluster

import (
	"bytes"
	"math/rand/v2"

	"github.com/lockproxy/lockproxy/backends/resp"
)

// A Merger makes one reply of those of several nodes, none of which is an error.
type Merger func(parts [][]byte) []byte

// Merge is the first error among parts, or what m makes of them.
func (m Merger) Merge(parts [][]byte) []byte {
	if refused := firstError(parts); refused != nil {
		return refused
	}
	return m(parts)
}

// AnyPlace is the Merge of a Split for which it does not matter where the keys were.
func AnyPlace(merge Merger) func([][]int, [][]byte) []byte {
	return func(_ [][]int, parts [][]byte) []byte { return merge(parts) }
}

func firstError(parts [][]byte) []byte {
	for _, p := range parts {
		if len(p) > 0 && (p[0] == '-' || p[0] == '!') {
			return p
		}
	}
	return nil
}

// First is the reply of the first node.
func First(parts [][]byte) []byte { return parts[0] }

// Sum adds numbers.
func Sum(parts [][]byte) []byte {
	var n int64
	for _, p := range parts {
		n += resp.Int(p)
	}
	return resp.AppendInt(nil, n)
}

// Min is the least number.
func Min(parts [][]byte) []byte {
	n := resp.Int(parts[0])
	for _, p := range parts {
		n = min(n, resp.Int(p))
	}
	return resp.AppendInt(nil, n)
}

// Elements puts the elements of the parts' arrays where their keys were.
func Elements(places [][]int, parts [][]byte) []byte {
	n := 0
	for _, p := range places {
		n += len(p)
	}
	all := make([][]byte, n)
	for i, part := range parts {
		elems, ok := resp.Elements(part)
		if !ok || len(elems) != len(places[i]) {
			return unmergeable()
		}
		for j, e := range elems {
			all[places[i][j]] = e
		}
	}
	return appendElements(parts[0][0], all)
}

// unmergeable is for replies that should not be.
func unmergeable() []byte {
	return resp.AppendError(nil, "ERR the nodes of the Cluster answered in a way that cannot be put together")
}

// appendElements is an aggregate of replies; an error for a map of an odd number.
func appendElements(kind byte, all [][]byte) []byte {
	if kind == '%' && len(all)%2 != 0 {
		return unmergeable()
	}
	return resp.AppendElements(nil, kind, all)
}

// Union is the elements of all arrays, each once.
func Union(parts [][]byte) []byte {
	var all [][]byte
	seen := map[string]struct{}{}
	for _, part := range parts {
		elems, ok := resp.Elements(part)
		if !ok {
			return unmergeable()
		}
		for _, e := range elems {
			if _, again := seen[string(e)]; !again {
				seen[string(e)] = struct{}{}
				all = append(all, e)
			}
		}
	}
	return appendElements(parts[0][0], all)
}

// Pairs adds the numbers behind the same names.
func Pairs(parts [][]byte) []byte {
	return elementwise(parts, func(i int, sum, next []byte) []byte {
		if i%2 == 0 {
			return sum
		}
		return resp.AppendInt(nil, resp.Int(sum)+resp.Int(next))
	})
}

// Least is, element by element, the least of all numbers.
func Least(parts [][]byte) []byte {
	return elementwise(parts, func(_ int, least, next []byte) []byte {
		if resp.Int(next) < resp.Int(least) {
			return next
		}
		return least
	})
}

// elementwise puts arrays of one length together, the elements at one index by merge.
func elementwise(parts [][]byte, merge func(i int, all, next []byte) []byte) []byte {
	all, ok := resp.Elements(parts[0])
	if !ok {
		return unmergeable()
	}
	for _, part := range parts[1:] {
		elems, ok := resp.Elements(part)
		if !ok || len(elems) != len(all) {
			return unmergeable()
		}
		for i, e := range elems {
			all[i] = merge(i, all[i], e)
		}
	}
	return appendElements(parts[0][0], all)
}

// Any is one of the replies that are not null.
func Any(parts [][]byte) []byte {
	for _, i := range rand.Perm(len(parts)) {
		if p := parts[i]; p[0] != '_' && !bytes.HasPrefix(p, []byte("$-1")) {
			return p
		}
	}
	return parts[0]
}
