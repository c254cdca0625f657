package observe

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// FuzzCommand: whatever clients send, however short, on keys that are followed or not, and whatever is answered, the
// Observer goes on. Each line is a command, its words between spaces; a line that begins with > is the reply.
func FuzzCommand(f *testing.F) {
	for _, seed := range []string{
		"SETNX job v\n>:1\nSET job\n>-ERR wrong number of arguments\nSET job v\nEVAL\nEVAL x\nEVAL x 1\nEVAL x 9 job",
		"SET lock:a v NX PX 5\n>+OK\nDEL\nDEL lock:a\n>:1\nMGET lock:a\nWATCH lock:a\nCLIENT\nCLIENT TRACKING\nSCRIPT\nSCRIPT LOAD\nSUBSCRIBE\nSUBSCRIBE __keyspace@",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) { feed(t, text) })
}

func feed(t *testing.T, text string) {
	for _, opt := range []Options{{All: true}, {Patterns: patterns(t, Observed)}, {All: true, Patterns: patterns(t, Adopted)}} {
		opt.MaxTTL = time.Minute
		o, err := New(opt)
		if err != nil {
			t.Fatal(err)
		}
		c := &Client{ID: 1}
		var tap *Tap
		for i, line := range strings.Split(text, "\n") {
			if reply, ok := strings.CutPrefix(line, ">"); ok {
				if tap != nil {
					tap.Reply([]byte(reply))
				}
				continue
			}
			var args [][]byte
			for _, w := range strings.Split(line, " ") {
				args = append(args, []byte(w))
			}
			tap = o.Command(c, Where(i%4), 0, 2+i%2, args)
		}
		o.Report()
	}
}

// TestCommand_AnyArity: commands that are on locks, with any number of words.
func TestCommand_AnyArity(t *testing.T) {
	names := strings.Fields(`SET SETNX SETEX PSETEX GETSET GET GETEX GETDEL GETRANGE STRLEN DEL UNLINK EXISTS TOUCH TYPE TTL PTTL EXPIRE PEXPIRE EXPIREAT PERSIST
		WATCH MGET INCR HSET HINCRBY HDEL HGET HGETALL EVAL EVALSHA EVAL_RO EVALSHA_RO SCRIPT CLIENT SUBSCRIBE PSUBSCRIBE PUBLISH RESET`)
	words := strings.Fields("lock:a lock:b job 1 0 -1 9 NX XX PX EX GET KEEPTTL LOAD TRACKING ON BCAST PREFIX __keyspace@0__:lock:* me")
	words = append(words, "", compareAndDelete, "return")
	replies := strings.Fields(":1 :0 +OK $-1 $2 -ERR -ADOPTREFUSED -NOQUORUM -MOVED *0")
	r := rand.New(rand.NewPCG(1, 2))
	var b strings.Builder
	b.WriteString("SETNX lock:a v\n>:1\nSETNX job v\n>:1\n")
	for range 6000 {
		b.WriteString(names[r.IntN(len(names))])
		for range r.IntN(6) {
			b.WriteString(" " + strings.ReplaceAll(words[r.IntN(len(words))], " ", "\t"))
		}
		b.WriteString("\n>" + replies[r.IntN(len(replies))] + "\n")
	}
	feed(t, b.String())
}
