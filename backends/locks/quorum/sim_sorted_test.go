package quorum

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// executeSorted is executeData for sorted sets, which are kept as hashes of scores.
func (n *simNode) executeSorted(name string, a []string) any {
	k := n.hash(a[0])
	switch name {
	case "ZADD":
		return n.hset([]string{a[0], a[2], a[1]})
	case "ZREM":
		return n.hdel(a)
	case "ZSCORE":
		return n.hmget(a).([]any)[0]
	case "ZCOUNT":
		return int64(len(k.scored(a[1], a[2])))
	case "ZRANGEBYSCORE":
		return members(k.scored(a[1], a[2]), false)
	case "ZREMRANGEBYSCORE":
		var out []string
		for _, m := range k.scored(a[1], a[2]) {
			out = append(out, m.name)
		}
		if len(out) == 0 {
			return int64(0)
		}
		return n.hdel(append([]string{a[0]}, out...))
	case "ZREVRANGE":
		all := k.scored("-inf", "+inf")
		slices.Reverse(all)
		last, _ := strconv.Atoi(a[2])
		return members(all[:min(len(all), last+1)], true)
	}
	return fmt.Errorf("ERR unknown command '%s'", name)
}

// scored are the members with scores within two bounds, the smallest score first.
func (k *simKey) scored(from, to string) (all []simField) {
	for _, f := range k.fields {
		x := score(f.value)
		if least, open := strings.CutPrefix(from, "("); (x > score(least) || !open && x == score(least)) && x <= score(to) {
			all = append(all, f)
		}
	}
	slices.SortStableFunc(all, func(a, b simField) int {
		return cmp.Or(cmp.Compare(score(a.value), score(b.value)), cmp.Compare(a.name, b.name))
	})
	return all
}

func score(text string) float64 {
	switch text {
	case "-inf":
		return math.Inf(-1)
	case "+inf":
		return math.Inf(1)
	}
	x, err := strconv.ParseFloat(text, 64)
	if err != nil {
		panic(err)
	}
	return x
}

func members(all []simField, scores bool) []any {
	out := []any{}
	for _, f := range all {
		out = append(out, f.name)
		if scores {
			out = append(out, f.value)
		}
	}
	return out
}
