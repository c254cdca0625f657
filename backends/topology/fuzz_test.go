package topology

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/redis/rueidis"
)

// FuzzNodeReplies: no replies of a server break what reads ROLE, CLUSTER SLOTS, CLUSTER
// NODES and SENTINEL. 0xff separates what it writes after successive reads.
func FuzzNodeReplies(f *testing.F) {
	const hello = "%1\r\n+proto\r\n:3\r\n\xff"
	for reader, s := range []string{
		hello + "*3\r\n+master\r\n:1\r\n*1\r\n*2\r\n+h\r\n+1\r\n",
		hello + "*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n+h\r\n:7000\r\n+id\r\n+id h:7000@17000 master - 0 0 1 connected 0-16383\r\n",
		hello + "*2\r\n+h\r\n+1\r\n%1\r\n+config-epoch\r\n+7\r\n*1\r\n%2\r\n+ip\r\n+h\r\n+port\r\n+2\r\n*0\r\n",
	} {
		f.Add([]byte(s), byte(reader))
	}
	f.Add([]byte(hello+"*1\r\n*3\r\n:0\r\n:16384\r\n*3\r\n+h\r\n:7000\r\n+id\r\n+\r\n"), byte(1)) // a slot that there is not
	f.Fuzz(func(t *testing.T, in []byte, reader byte) {
		c := scriptedNode(t, bytes.Split(in, []byte{0xff}))
		defer c.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		switch reader % 3 {
		case 0:
			_ = readRole(do(ctx, c, "ROLE"))
		case 1:
			v, err := askNode(ctx, c, "asked:1")
			if err != nil {
				return
			}
			m := merge([]*nodeView{v})
			for slot, i := range m.slots {
				if i != NoShard && int(i) >= len(m.shards) {
					t.Fatalf("slot %d has shard %d of %d", slot, i, len(m.shards))
				}
			}
		default:
			_, _ = askSentinel(ctx, c, "set")
		}
	})
}

// scriptedNode is a client of a server that writes one of replies after each read, or
// after 2 ms without one, and then hangs up for good.
func scriptedNode(t *testing.T, replies [][]byte) rueidis.Client {
	t.Helper()
	dialed := false
	c, err := parse(t, "scripted:1").Client(func(opt *rueidis.ClientOption) {
		opt.RingScaleEachConn = 6
		opt.ReadBufferEachConn, opt.WriteBufferEachConn = 4<<10, 4<<10
		opt.DialCtxFn = func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
			if dialed {
				return nil, errors.New("gone")
			}
			dialed = true
			here, there := net.Pipe()
			go func() {
				defer there.Close()
				buf := make([]byte, 4<<10)
				for _, p := range replies {
					_ = there.SetReadDeadline(time.Now().Add(2 * time.Millisecond))
					if _, err := there.Read(buf); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
						return
					}
					_ = there.SetWriteDeadline(time.Now().Add(time.Second))
					if _, err := io.Copy(there, bytes.NewReader(p)); err != nil {
						return
					}
				}
			}()
			return here, nil
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}
