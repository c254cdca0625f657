package observe

import (
	"math"
	"math/bits"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/lockproxy/lockproxy/commands/adopt/idiom"
)

// A rowID is the same for keys that share a row.
type rowID struct {
	db    int
	shape string
}

// A row is what is known of the keys of one shape. It is guarded by the Observer's mu.
type row struct {
	// Which keys.
	db      int
	shape   string
	example string // its first key
	pattern *Pattern
	script  string // if the row is that of a script whose text is not known: its SHA-1

	// How they are used.
	forms  uint32 // of its commands, as bits of form
	calls  map[idiom.Class]int64
	values values
	guess  guess

	// How much.
	clients   crowd
	taken     int64
	contended int64 // acquisitions that were refused, since another had the lock
	noQuorum  int64
	rate      rate
	held      histogram
	ttls      struct {
		least, most time.Duration
		endless     int64
	}

	// What adoption would say, and what can go wrong.
	allowed, refused int64
	why              string // of the last refusal
	word             string // the word of a pattern that some calls need; empty: none does
	hazards          [hazards]struct {
		count int64
		key   string
	}
}

func (r *row) mode() Mode {
	if r.pattern == nil {
		return Reported
	}
	return r.pattern.Mode
}

func (r *row) hazard(h hazard, key string) {
	if r.hazards[h].count++; r.hazards[h].key == "" {
		r.hazards[h].key = key
	}
}

func (r *row) noteTTL(ttl time.Duration) {
	if ttl == idiom.Forever {
		r.ttls.endless++
		return
	}
	if r.ttls.least == 0 || ttl < r.ttls.least {
		r.ttls.least = ttl
	}
	r.ttls.most = max(r.ttls.most, ttl)
}

// values are the last ones that locks of a row were taken with, by hash.
type values struct {
	seen *simplelru.LRU[uint64, *valueUse]
}

type valueUse struct {
	by      int64 // the connection that used it first
	several bool  // others have, too
	grants  int
}

// maxValues is how many values of a row are remembered.
const maxValues = 64

// many is how many grants with one value make it count as the value of a process.
const many = 3

// note counts a grant with a value, and returns the hazard that it is, if any.
func (v *values) note(value uint64, by int64) (hazard, bool) {
	if v.seen == nil {
		v.seen, _ = simplelru.NewLRU[uint64, *valueUse](maxValues, nil) // whose size is fine
	}
	use, ok := v.seen.Get(value)
	if !ok {
		use = &valueUse{by: by}
		v.seen.Add(value, use)
	}
	use.grants++
	use.several = use.several || use.by != by
	switch {
	case use.several:
		return constantValue, true
	case use.grants >= many:
		return processValue, true
	}
	return 0, false
}

// A rate counts events of the last minute.
type rate struct {
	slots [6]int64
	at    int64 // the number of the current slot
}

const slotLength = 10 * time.Second

func (r *rate) turn(since time.Duration) {
	now := int64(since / slotLength)
	for steps := min(now-r.at, int64(len(r.slots))); steps > 0; steps-- {
		r.slots[int((now-steps+1)%int64(len(r.slots)))] = 0
	}
	r.at = max(r.at, now)
}

// note counts an event at a time since the Observer began.
func (r *rate) note(since time.Duration) {
	r.turn(since)
	r.slots[int(r.at%int64(len(r.slots)))]++
}

// perSecond returns the rate in the last minute, or since the beginning.
func (r *rate) perSecond(since time.Duration) float64 {
	r.turn(since)
	total := int64(0)
	for _, n := range r.slots {
		total += n
	}
	window := time.Duration(len(r.slots)-1)*slotLength + since%slotLength
	return float64(total) / max(min(window, since), time.Second).Seconds()
}

// A crowd estimates how many connections there were in the last ten to twenty minutes. It is exact for few.
type crowd struct {
	now, before [crowdBits / 64]uint64
	window      int64
}

const (
	crowdBits   = 2048
	crowdWindow = 10 * time.Minute
)

func (c *crowd) turn(since time.Duration) {
	switch w := int64(since / crowdWindow); {
	case w == c.window+1:
		c.before, c.now, c.window = c.now, [crowdBits / 64]uint64{}, w
	case w > c.window:
		*c = crowd{window: w}
	}
}

func (c *crowd) note(id int64, since time.Duration) {
	c.turn(since)
	bit := uint64(id) * 0x9e3779b97f4a7c15 >> 53 // 11 bits
	c.now[bit/64] |= 1 << (bit % 64)
}

func (c *crowd) size(since time.Duration) int {
	c.turn(since)
	set := 0
	for i := range c.now {
		set += bits.OnesCount64(c.now[i] | c.before[i])
	}
	if set == crowdBits {
		set--
	}
	return int(math.Round(-crowdBits * math.Log(1-float64(set)/crowdBits)))
}

// A histogram has four buckets an octave, from a millisecond on.
type histogram struct {
	buckets [29 * 4]uint32
	count   int64
	most    time.Duration
}

func bucketOf(d time.Duration) int {
	if d < time.Millisecond {
		return 0
	}
	at := int(4*math.Log2(float64(d)/float64(time.Millisecond))) + 1
	return min(at, len(histogram{}.buckets)-1)
}

func (h *histogram) note(d time.Duration) {
	h.buckets[bucketOf(d)]++
	h.count++
	h.most = max(h.most, d)
}

// quantile returns the upper end of the bucket that a quantile is in, which is 19 % too much at most.
func (h *histogram) quantile(q float64) time.Duration {
	rank := int64(math.Ceil(q * float64(h.count)))
	for i, n := range h.buckets {
		if rank -= int64(n); rank <= 0 && n > 0 {
			return min(time.Duration(math.Exp2(float64(i)/4)*float64(time.Millisecond)), h.most)
		}
	}
	return h.most
}
