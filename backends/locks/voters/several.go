package voters

import (
	"fmt"
	"strconv"

	"github.com/redis/rueidis"

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
	j.Parse = parseAcquireAll(len(each))
	return j
}

// parseAcquireAll reads what acquireall answers about so many names.
func parseAcquireAll(names int) Parse {
	return func(m []rueidis.RedisMessage) (Vote, error) {
		if len(m) != names+1 {
			return Vote{}, fmt.Errorf("%d replies where %d were expected", len(m)-1, names)
		}
		v := Vote{Kind: Yes, Names: make([]Vote, names)}
		for i := range v.Names {
			reply, err := m[i+1].ToArray()
			if err == nil {
				v.Names[i], err = ParseAcquire(reply)
			}
			if err != nil {
				return v, err
			}
			if kind := v.Names[i].Kind; v.Kind == Yes || v.Kind == Withheld {
				v.Kind = kind
			}
		}
		return v, nil
	}
}
