package membership

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/backends"
	"github.com/lockproxy/lockproxy/backends/locks/vote"
)

// Without returns a list of lock nodes without those of the ID of s.
func Without(list []*backends.Server, s *backends.Server) []*backends.Server {
	return slices.DeleteFunc(slices.Clone(list), func(o *backends.Server) bool { return o.ID() == s.ID() })
}

// With returns a list with s in place of nodes of its ID.
func With(list []*backends.Server, s *backends.Server) []*backends.Server {
	return append(Without(list, s), s)
}

// A member is what a node's record tells of its set.
type member struct {
	err     error // of a node that did not answer, or has no record
	empty   bool  // it has no record
	votes   bool
	largest int64
	maxTTL  time.Duration
	since   time.Duration // the last change
	now     int64         // ms, by its clock
	record  map[string]string
}

func (m *member) answered() bool { return m.err == nil }
func (m *member) voting() bool   { return m.err == nil && m.votes }

// parse reads what change.lua answers about the record.
func (m *member) parse(reply []rueidis.RedisMessage) (vote.Vote, error) {
	var code, epoch, maxTTL, votes, since int64
	if err := vote.ReadInts(reply, &code, &epoch); err != nil || code == 0 {
		return vote.Vote{Kind: vote.No}, err
	}
	if err := vote.ReadInts(reply, &code, &m.largest, &maxTTL, &votes, &since, &m.now); err != nil {
		return vote.Vote{}, err
	}
	m.maxTTL, m.since, m.votes, m.record = vote.Millis(maxTTL), vote.Millis(since), votes == 1, map[string]string{}
	for reply = reply[6:]; len(reply) >= 2; reply = reply[2:] {
		var k, v string
		if err := cmp.Or(vote.ReadText(reply[0], &k), vote.ReadText(reply[1], &v)); err != nil {
			return vote.Vote{}, err
		}
		m.record[k] = v
	}
	v := vote.Vote{Kind: vote.Yes}
	if m.largest == 0 && !m.votes {
		return v, nil
	}
	return v, vote.CheckFence(m.largest)
}

// epoch is how often the set was changed.
func (m *member) epoch() int64 {
	n, _ := strconv.ParseInt(m.record["epoch"], 10, 64)
	return n
}

// remaining is for how long leases from before the last change may run.
type remaining struct {
	left time.Duration // until max-ttl after it, or as long as a majority had told that they do
	read time.Duration // how long ago that was; negative: it was not
	key  string        // of the longest, if it was; without the prefix
}

func (m *member) remaining() remaining {
	r := remaining{left: m.maxTTL - m.since, read: -1}
	over := strings.SplitN(m.record["over"], " ", 4)
	if len(over) < 4 || over[0] != m.record["epoch"] {
		return r
	}
	at, err := strconv.ParseInt(over[1], 10, 64)
	read, err2 := strconv.ParseInt(over[2], 10, 64)
	if err != nil || err2 != nil {
		return r
	}
	r.read = vote.Millis(m.now - read)
	if told := vote.Millis(at - m.now); told < r.left {
		r.left, r.key = told, over[3]
	}
	return r
}

// lastSeen is how long ago a proxy with this list made or kept a lease, or said that it is there; ok is false if none ever was.
func (m *member) lastSeen(list vote.NodeList) (ago time.Duration, ok bool) {
	for field, at := range m.record {
		ttl, word, _ := strings.Cut(strings.TrimPrefix(field, "m"), " ")
		_, err := strconv.ParseInt(ttl, 10, 64)
		last, err2 := strconv.ParseInt(at, 10, 64)
		if err != nil || err2 != nil || !(vote.NodeList{Fingerprint: word}).Same(list) {
			continue
		}
		if d := vote.Millis(m.now - last); !ok || d < ago {
			ago, ok = d, true
		}
	}
	return ago, ok
}
