package voters

import (
	"fmt"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/backends/locks/nodekeys"
	"github.com/lockproxy/lockproxy/scripts"
)

// AcquireAll is the command that asks for several names at once. each are the commands that ask for one, and keys their keys; args
// are the arguments of acquireall before those.
func (s *Set) AcquireAll(keys []nodekeys.Keys, each [][]string, args ...string) []string {
	c := append(make([]string, 0, len(each)*(len(each[0])+4)), "EVALSHA", scripts.AcquireAll.SHA1, "", keys[0].Lock, keys[0].Fences, keys[0].Node)
	ofName := 2
	if keys[0].Name != "" {
		ofName, c = 3, append(c, keys[0].Name)
	}
	for _, k := range keys[1:] {
		c = append(c, []string{k.Lock, k.Fences, k.Name}[:ofName]...)
	}
	c[2] = strconv.Itoa(len(c) - 3)
	c = append(append(append(c, s.commonArgs...), strconv.Itoa(ofName)), args...)
	for _, args := range each {
		own := args[ownArgs+ofName-2:]
		c = append(append(c, strconv.Itoa(len(own))), own...)
	}
	return c
}

// ParseAcquireAll reads what acquireall answers about so many names.
func ParseAcquireAll(names int) Parse {
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
