// Package embedded runs servers inside this process, for those who have none: miniredis,
// with what people at redis-cli and starting clients ask for on top.
//
// [Start] starts them. What miniredis lacks, or would answer wrongly, is answered here before
// it gets the command: COMMAND of commands.txt, INFO with what is known, and some commands
// that only look ([Server.answer]).
package embedded

import (
	"bufio"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"

	"github.com/lockproxy/lockproxy/backends/resp"
)

// A Server is one that runs in this process. It is safe for concurrent use.
type Server struct {
	m             *miniredis.Miniredis
	inner         *server.Server // of m, which forgets it when it is closed, while commands may still run
	port          string
	runID, replID string
	started       time.Time

	mu       sync.Mutex
	conns    map[*server.Peer]*conn
	lastID   int
	answered int    // commands that miniredis does not know of
	peak     uint64 // the most memory that was seen
}

// Start starts n servers on free loopback ports. Their keys expire by the clock of this
// process: each command first subtracts the time since the last from all TTLs, so that a
// command's cost grows with the number of keys.
func Start(n int) (servers []*Server, err error) {
	for range n {
		s := &Server{m: miniredis.NewMiniRedis(), runID: randomID(), replID: randomID(), started: time.Now(), conns: map[*server.Peer]*conn{}}
		if err := s.m.Start(); err != nil {
			Close(servers)
			return nil, fmt.Errorf("embedded server: %w", err)
		}
		s.port = s.m.Port()
		s.m.ClockTTL(true)
		s.inner = s.m.Server()
		s.inner.SetPreHook(s.handle)
		servers = append(servers, s)
	}
	return servers, nil
}

// Close ends servers, with what they hold.
func Close(servers []*Server) {
	for _, s := range servers {
		s.m.Close()
	}
}

// URL is how the server is reached.
func (s *Server) URL() string { return "redis://" + s.m.Addr() }

// randomID is an id of the form that run ids and replication ids have.
func randomID() string {
	var id [20]byte
	_, _ = rand.Read(id[:]) // which never fails
	return hex.EncodeToString(id[:])
}

// handle is called before each command, and answers it if it can, or has miniredis do it. It
// returns false for what is to go on to miniredis from where it was called.
func (s *Server) handle(p *server.Peer, cmd string, args ...string) (done bool) {
	c := s.begin(p, cmd)
	if c == nil {
		return false
	}
	defer s.end(c, cmd, args)
	reply := s.answer(c, p, cmd, args)
	_, isErr := resp.Error(reply)
	switch inTx := c.queued >= 0; {
	case reply == nil:
		s.inner.Dispatch(p, append([]string{cmd}, understood(cmd, args)...))
		return true
	case inTx && isErr:
		abort(s.inner, p)
	case inTx:
		s.inner.Dispatch(p, append([]string{"EVAL"}, literal(reply)...))
		return true
	}
	s.mu.Lock()
	s.answered++
	s.mu.Unlock()
	p.WriteRaw(string(reply))
	return true
}

// understood are args without what miniredis refuses and need not know: how closely MEMORY
// USAGE is to look.
func understood(cmd string, args []string) []string {
	if cmd == "MEMORY" && len(args) == 4 && strings.EqualFold(args[2], "SAMPLES") {
		return args[:2]
	}
	return args
}

// abort has the transaction of a connection fail. In miniredis a command without its
// arguments does that, and an unknown one does not.
func abort(inner *server.Server, p *server.Peer) {
	unseen := server.NewPeer(bufio.NewWriter(io.Discard))
	unseen.Ctx = p.Ctx
	inner.Dispatch(unseen, []string{"GET"})
}
