package adopt

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// deadlines fills a line in: <10> is the Unix time in ten seconds, in the unit of the pattern that the line's key matches.
func deadlines(line string) string {
	for i := strings.IndexByte(line, '<'); i >= 0; i = strings.IndexByte(line, '<') {
		inside, rest, _ := strings.Cut(line[i+1:], ">")
		after, _ := strconv.ParseFloat(inside, 64)
		at := time.Now().Add(time.Duration(after * float64(time.Second)))
		text := ""
		switch {
		case strings.Contains(line, "ms:"):
			text = fmt.Sprint(at.UnixMilli())
		case strings.Contains(line, "float:"):
			text = fmt.Sprintf("%.2f", float64(at.UnixMilli())/1000)
		default:
			text = fmt.Sprint(at.Unix())
		}
		line = line[:i] + text + rest
	}
	return line
}

// TestDeadlines: a lock whose value is a time ends then, and GETSET takes what nobody has. Steps are a proxy, what is said
// through it, and the reply; <n> is the time in n seconds.
func TestDeadlines(t *testing.T) {
	const from = ", not within min-ttl and max-ttl, 100ms and 1m0s; adopted by "
	for name, steps := range map[string][]string{
		"taken until then":      {"0 SETNX s:a <10> > :1", "1 PTTL s:a > :10000", "1 SETNX s:a <10> > :0", "sleep 9s", "1 SETNX s:a <10> > :0", "sleep 1100ms", "1 SETNX s:a <10> > :1", "0 SETNX s:a <20> > :0"},
		"in milliseconds":       {"0 SETNX ms:a <2.5> > :1", "0 PTTL ms:a > :2500"},
		"with a fraction":       {"0 SETNX float:a <2.5> > :1", "0 PTTL float:a > :2500", "1 GET float:a > $12 946684802.50"},
		"GETSET of what is had": {"0 SETNX s:a <10> > :1", "1 GETSET s:a <20> > $9 946684820", "1 GET s:a > $9 946684810", "0 PTTL s:a > :10000"},
		"GETSET of nothing":     {"0 GETSET s:a <10> > $-1", "1 GETSET s:a <20> > $9 946684820", "1 PTTL s:a > :10000"},
		"GETSET, an old guess":  {"0 SETNX s:a <10> > :1", "1 DEL s:a > :1", "0 GETSET s:a <20> > $-1", "1 GET s:a > $9 946684820"},
		"no time":               {"0 SETNX s:a me > ADOPTREFUSED SETNX s:a: its value is no Unix time in the unit of timestamps=s; adopted by \"s:*\"", "0 SETNX s:a 1.5 > ADOPTREFUSED SETNX s:a: its value is no Unix time in the unit of timestamps=s; adopted by \"s:*\"", "0 SETNX float:a NaN > ADOPTREFUSED SETNX float:a: its value is no Unix time in the unit of timestamps=float; adopted by \"float:*\"", "0 EXISTS s:a > :0"},
		"too far":               {"0 SETNX s:a <61> > ADOPTREFUSED SETNX s:a: its value is a time 1m1s from now" + from + `"s:*"`, "0 GETSET s:a <3600> > ADOPTREFUSED GETSET s:a: its value is a time 1h0m0s from now" + from + `"s:*"`},
		"gone by":               {"0 SETNX s:a <-5> > ADOPTREFUSED SETNX s:a: its value is a time -5s from now" + from + `"s:*"`, "0 SETNX ms:a <0.05> > ADOPTREFUSED SETNX ms:a: its value is a time 50ms from now" + from + `"ms:*"`},
		"of seconds as ms":      {"0 SETNX s:a 946684810000 > ADOPTREFUSED SETNX s:a: its value is a time 2562047h47m16.854775807s from now" + from + `"s:*"`},
		"SET NX":                {"0 SET s:a <10> NX > +OK", "1 PTTL s:a > :10000", "1 SET s:a <10> nx > $-1", "1 DEL s:a > :1", "1 SET s:a me NX > ADOPTREFUSED SET s:a: its value is no Unix time in the unit of timestamps=s; adopted by \"s:*\"", "0 SET s:a me NX PX 5000 > +OK"},
		"other commands":        {"0 SET s:a me NX PX 5000 > +OK", "0 GETSET s:a <10> > $9 946684810", "0 GET s:a > $2 me", "0 DEL s:a > :1"},
		"in a transaction":      {"0 queue SETNX s:a <10> > QUEUED", "0 queue GETSET s:a <20> > QUEUED", "0 EXEC > *2 :1 $9 946684820", "1 PTTL s:a > :10000"},
		"off":                   {"0 SETNX off:a <10> > :1", "0 PTTL off:a > :30000", `0 GETSET off:a <10> > ADOPTREFUSED GETSET off:a: OVERWRITE does not compare the value: set as=full; adopted by "off:*"`},
		"strict":                {"0 SETNX strict:a <10> > :1", "0 GETSET strict:a <20> > $9 946684820"},
		// The owner's clock is the proxy's. What Ruby's redis-mutex says: SETNX, GET, and GETSET if that time is over; GET and DEL.
		"redis-mutex":                      {"0 SETNX float:a <10> > :1", "1 SETNX float:a <10> > :0", "1 GET float:a > $12 946684810.00", "0 GET float:a > $12 946684810.00", "0 DEL float:a > :1", "1 SETNX float:a <10> > :1"},
		"redis-mutex, its holder has died": {"0 SETNX float:a <10> > :1", "sleep 9500ms", "1 SETNX float:a <10> > :0", "1 GET float:a > $12 946684810.00", "sleep 1s", "1 SETNX float:a <10> > :1"},
		"redis-mutex, it ends in between":  {"0 SETNX float:a <10> > :1", "sleep 9999ms", "1 SETNX float:a <10> > :0", "sleep 2ms", "1 GET float:a > $-1", "1 GETSET float:a <10> > $-1", "0 GETSET float:a <10> > $12 946684820.00"},
		// redis-py up to 2.x: the same with a float of Python's, and a clock that is ahead: it takes the lock for over.
		"redis-py 2, a clock that is ahead": {"0 SETNX float:a <10> > :1", "1 SETNX float:a <25> > :0", "1 GET float:a > $12 946684810.00", "1 GETSET float:a <25> > $12 946684825.00", "0 GET float:a > $12 946684810.00", "0 DEL float:a > :1"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := proxies(t, 2, "s:* timestamps=s guard=no", "ms:* timestamps=ms guard=no", "float:* timestamps=float guard=no", "off:* no-expiry=lease:30s guard=no", "strict:* as=strict timestamps=s guard=no")
				follow(t, p, steps)
			})
		})
	}
}
