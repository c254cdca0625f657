package main

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/cmd/lockproxy/client"
)

// FuzzWire: whatever a proxy answers lockproxy run, it is one reply after the other, or an
// error, and costs little more memory than has come.
func FuzzWire(f *testing.F) {
	for _, s := range []string{
		"%1\r\n+proto\r\n:3\r\n", "*4\r\n:9\r\n$2\r\nme\r\n:30000\r\n:1\r\n", ">4\r\n+lock-lost\r\n$1\r\na\r\n:9\r\n+expired\r\n", "_\r\n*-1\r\n$-1\r\n", "$999999\r\nx", "*1048576\r\n", "*9223372036854775807\r\n", "%-1\r\n", "|1\r\n+a\r\n+b\r\n:1\r\n",
		strings.Repeat("*1\r\n", 300), strings.Repeat("*2\r\n:1\r\n", 50), "-NOQUORUM x\r\n", "$0\r\n\r\n", "+\r\n", "\r\n", "x", "=7\r\ntxt:abc\r\n", "#t\r\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		r := bufio.NewReader(bytes.NewReader(in))
		for {
			v, err := client.ReadReply(r)
			if err != nil {
				return
			}
			if size := sizeOf(v); size > 2*len(in)+2 {
				t.Fatalf("%q has %d values and bytes", in, size)
			}
		}
	})
}

func sizeOf(v resp.Tree) int {
	n := 1 + len(v.Text)
	for _, e := range v.Elems {
		n += sizeOf(e)
	}
	return n
}

// FuzzSettings: whatever a file says, it is settings or faults, and a fault never repeats a
// secret.
func FuzzSettings(f *testing.F) {
	const secret = "hunter2secret"
	for _, s := range []string{
		"upstream: redis://h:1\n", "upstream: redis://u:" + secret + "@h:1/x\nlock-node: [a, b, a]\nmax-ttl: 30s\nmin-ttl: 30\n", "max-bulk: 9999999999999999gb\nmax-output: -1\n", "listen: :::\nlock-node:\n  - rediss://:" + secret + "@h\n", "a: &a [*a]\n", "upstream-file: /nonexistent\n",
		"max-clients: 1e9\nprocs: -1\n", "- x\n", "upstream: a:1\nlock-store: etcd://a/x\n", "upstream: [a, b]\n", "? x\n: y\n", "upstream: !!binary x\n", "log-level: 7\nrequire-owner: maybe\n", "\x00", "upstream: redis://h:1?addr=g:1&master_set=m\nupstream-mode: cluster\n", "replica-acks: 99999999999999999999\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if bytes.Contains(text, []byte("-file")) || bytes.Contains(text, []byte("tls-")) { // they name other files
			return
		}
		path := filepath.Join(t.TempDir(), "lockproxy.yaml")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		c, bad := fromFile(path, new(options).settings())
		o, bad := validated(c, bad)
		switch {
		case len(bad) == 0 && (o.upstream == nil || len(o.nodes) == 0 && !o.store.IsEtcd() || o.minTTL <= 0 || o.maxTTL < o.minTTL || o.maxClients <= 0 || o.maxBulk <= 0 || o.maxOutput <= 0 || o.maxWaiters < 0):
			t.Fatalf("%q: taken as %+v", text, o)
		case len(bad) > 0 && bytes.Contains(text, []byte("://")) && !outsideURLs(text, secret) && strings.Contains(bad.Error(), secret):
			t.Fatalf("%q: %v", text, bad)
		}
	})
}

// outsideURLs reports whether the secret is also where no password belongs.
func outsideURLs(text []byte, secret string) bool {
	for line := range bytes.Lines(text) {
		if bytes.Contains(line, []byte(secret)) && !bytes.HasPrefix(bytes.TrimLeft(line, " -"), []byte("redis")) && !bytes.HasPrefix(line, []byte("upstream: redis")) && !bytes.HasPrefix(line, []byte("lock-node: redis")) {
			return true
		}
	}
	return false
}
