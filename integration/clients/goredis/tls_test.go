package goredis

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// TestTLS_Pipelines: everything speaks TLS, the proxy with its upstream and lock nodes too.
func TestTLS_Pipelines(t *testing.T) {
	t.Parallel()
	ca := redistest.NewAuthority(t)
	_, data := redistest.StartTLS(t, ca)
	args := []string{"--upstream", data, "--tls-ca", ca.File}
	for range 3 {
		_, node := redistest.StartTLS(t, ca)
		args = append(args, "--lock-node", node)
	}
	for flag, name := range map[string]string{"--tls-server": "to-servers", "--tls": "proxy"} {
		cert, key := ca.Issue(t, name)
		args = append(args, flag+"-cert", cert, flag+"-key", key)
	}
	addr, err := redistest.FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	c := redis.NewClient(&redis.Options{Addr: redistest.StartServe(t, addr, args...).Addr(), TLSConfig: ca.Client(t, "", "")})
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), redistest.ReplyTimeout)
	defer cancel()
	const n = 1000
	cmds, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := range n {
			p.Set(ctx, fmt.Sprint("k", i), bytes.Repeat([]byte{'v'}, i), 0)
			p.StrLen(ctx, fmt.Sprint("k", i))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if got := cmds[2*i+1].(*redis.IntCmd).Val(); got != int64(i) {
			t.Fatalf("STRLEN k%d answers %d", i, got)
		}
	}
	if grant, err := c.Do(ctx, "LOCK", "go", "30s", "OWNER", "me").Slice(); err != nil || len(grant) != 4 || grant[1] != "me" {
		t.Errorf("LOCK: %v, %v", grant, err)
	}
}
