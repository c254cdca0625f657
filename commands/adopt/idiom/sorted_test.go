package idiom

import (
	"fmt"
	"testing"
	"time"
)

// timeOf is a time as clients send it, in seconds with a fraction.
func timeOf(t time.Time) string { return fmt.Sprintf("%.4f", float64(t.UnixMicro())/1e6) }

// TestSorted_ClientsClock: a lock is not over because a client's clock says so, and lasts until the time that the client
// has named, by this clock.
func TestSorted_ClientsClock(t *testing.T) {
	now := time.Now().Truncate(time.Millisecond)
	yours := State{Kind: Sorted, Value: "you", Left: 3 * time.Second}
	for _, text := range sortedCases[1].texts[:2] {
		for ahead, want := range map[time.Duration]time.Duration{-4 * time.Second: 6 * time.Second, 0: 10 * time.Second, 20 * time.Second: 30 * time.Second} {
			call, err := ParseScript(text).Call(lockKey, []string{timeOf(now.Add(ahead)), "me", "10000"}, 2, false, isLock)
			if err != nil {
				t.Fatal(err)
			}
			out, err := call.Run(State{}, now)
			if err != nil || out.Op.Do != Take || (out.Op.TTL-want).Abs() > time.Millisecond {
				t.Errorf("%v ahead: %+v, %v, want a lease of %v", ahead, out.Op, err, want)
			}
			if out, err := call.Run(yours, now); err != nil || out.Op.Do != Nothing {
				t.Errorf("%v ahead, another has it: %+v, %v", ahead, out.Op, err)
			}
		}
		call, err := ParseScript(text).Call(lockKey, []string{timeOf(now.Add(-11 * time.Second)), "me", "10000"}, 2, false, isLock)
		if err != nil {
			t.Fatal(err)
		}
		if out, err := call.Run(State{}, now); err == nil {
			t.Errorf("a lease that is over when it begins: %+v", out)
		}
	}
}

// TestSorted_ReadsTheEnd: only a script that looks at the scores of the lock as it was needs to know exactly how long it lasts.
func TestSorted_ReadsTheEnd(t *testing.T) {
	mine := State{Kind: Sorted, Value: "me", Left: 3 * time.Second}
	for text, want := range map[string]bool{
		sortedCases[0].texts[0]:                                                    false,
		sortedCases[0].texts[1]:                                                    true, // it compares a score with false
		sortedCases[3].texts[0]:                                                    false,
		sortedCases[3].texts[2]:                                                    true,
		sortedCases[4].texts[0]:                                                    false,
		`return redis.call('zscore', KEYS[1], 'me')`:                               true,
		`return {redis.call('zscore', KEYS[1], 'me')}`:                             true,
		`local s = redis.call('zscore', KEYS[1], 'me') return 1`:                   true,
		`if (redis.call('zscore', KEYS[1], 'me') or 0) then return 1 end return 0`: false,
		`return not redis.call('zscore', KEYS[1], 'me') and 1 or 0`:                false,
		`local function f() return redis.call('zscore', KEYS[1], 'me') end if f() then return 1 end return 0`:            true,
		`return #redis.call('zrange', KEYS[1], 0, -1)`:                                                                   false,
		`return redis.call('zrevrange', KEYS[1], 0, 0, 'withscores')[1]`:                                                 true,
		`return redis.call('zcount', KEYS[1], '-inf', '+inf')`:                                                           false,
		`return redis.call('zcount', KEYS[1], '(' .. redis.call('time')[1], '+inf')`:                                     false,
		`return redis.call('zcount', KEYS[1], redis.call('time')[1] * 1000 + 5000, '+inf')`:                              true,
		`if redis.call('pttl', KEYS[1]) > 5 then redis.call('zrem', KEYS[1], 'me', '__write__') return 1 end return 0`:   true,
		`while redis.call('zscore', KEYS[1], 'me') do return redis.call('del', KEYS[1]) end return 0`:                    false,
		`repeat redis.call('zrem', KEYS[1], 'me', '__write__') until not redis.call('zscore', KEYS[1], 'me') return 'x'`: false,
	} {
		call, err := ParseScript(text).Call(lockKey, withTTL, 2, false, isLock)
		if err != nil {
			t.Fatal(err)
		}
		if out, err := call.Run(mine, time.Now()); err != nil || out.TimeRead != want {
			t.Errorf("%s: %t, %v", text, out.TimeRead, err)
		}
	}
}

// TestSorted_RefusesNewHolder: a run that would give somebody's lock to another holder is refused, whatever its class is.
func TestSorted_RefusesNewHolder(t *testing.T) {
	for _, c := range refusedCases {
		if c.name != "a sorted set that is another's" {
			continue
		}
		for _, text := range c.texts {
			call, err := ParseScript(text).Call(c.keys, c.args, 2, false, isLock)
			if err != nil {
				t.Fatal(err)
			}
			if out, err := call.Run(State{Kind: Sorted, Value: "you", Left: 3 * time.Second}, time.Now()); err == nil {
				t.Errorf("%s: %+v", text, out.Op)
			}
		}
		return
	}
	t.Error("there is no such case")
}
