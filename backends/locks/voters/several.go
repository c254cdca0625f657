package voters

import (
	"strconv"

	"github.com/lockproxy/lockproxy/backends/locks/vote"
	"github.com/lockproxy/lockproxy/scripts"
)

// AcquireAll is the call that asks for several names at once, from the calls that ask for one each. args are the arguments of
// acquireall behind the number of keys.
func AcquireAll(each []ScriptCall, args ...string) ScriptCall {
	j := each[0]
	j.Args = append(append(beginning(scripts.AcquireAll, each), strconv.Itoa(each[0].keysOfItsOwn())), args...)
	for i := range each {
		own := each[i].own()
		j.Args = append(append(j.Args, strconv.Itoa(len(own))), own...)
	}
	j.Parse = vote.ParseAcquireAll(len(each))
	return j
}
