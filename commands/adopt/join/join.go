// Package join puts the replies together that a command was given whose keys were asked for in several places.
package join

import (
	"bytes"

	"github.com/lockproxy/lockproxy/backends/resp"
)

// Replies are the commands of which some keys may be locks, each with the function that joins the replies: one for each lock,
// and others for all other keys (nil: there are none), which stand at places among all keys. It returns nil if others is no
// reply to the command.
var Replies = map[string]func(locks [][]byte, others []byte, places []int) []byte{
	"DEL": sum, "UNLINK": sum, "EXISTS": sum, "TOUCH": sum, "MGET": merge,
}

func sum(locks [][]byte, others []byte, _ []int) []byte {
	n := int64(0)
	if len(others) > 0 {
		locks = append(locks, others)
	}
	for _, reply := range locks {
		if reply[0] != ':' {
			return nil
		}
		n += resp.Int(reply)
	}
	return resp.AppendInt(nil, n)
}

// merge puts the elements of arrays where their keys were.
func merge(locks [][]byte, others []byte, places []int) []byte {
	theirs, _ := resp.Elements(others)
	if len(theirs) != len(places) {
		return nil
	}
	all := make([][]byte, len(locks)+len(places))
	for i, at := range places {
		all[at] = theirs[i]
	}
	for i := range all {
		if all[i] == nil {
			own, _ := resp.Elements(locks[0])
			all[i], locks = own[0], locks[1:]
		}
	}
	return resp.AppendElements(nil, '*', all)
}

// Either has of each element of two lists the one that is not as in none, a third list.
func Either(ours, theirs, none []byte) []byte {
	a, _ := resp.Elements(ours)
	b, isList := resp.Elements(theirs)
	n, _ := resp.Elements(none)
	if !isList || len(a) != len(b) || len(a) != len(n) { // an error of the upstream's
		return theirs
	}
	for i := range a {
		if bytes.Equal(a[i], n[i]) {
			a[i] = b[i]
		}
	}
	return resp.AppendElements(nil, '*', a)
}
