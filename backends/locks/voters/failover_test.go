package voters

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// sentinelAndMaster is the address of a server that is a sentinel, and the master which that names. It calls role before it tells its own.
func sentinelAndMaster(t *testing.T, role func()) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	host, port, _ := net.SplitHostPort(l.Addr().String())
	answer := func(command []string) string {
		switch strings.ToUpper(command[0]) {
		case "HELLO":
			return "%1\r\n+proto\r\n:3\r\n"
		case "SENTINEL":
			if command[1] == "GET-MASTER-ADDR-BY-NAME" {
				return fmt.Sprintf("*2\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(host), host, len(port), port)
			}
			return "*0\r\n"
		case "ROLE":
			role()
			return "*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n"
		}
		return "+OK\r\n"
	}
	go func() {
		for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
			go func() {
				defer conn.Close()
				for r := bufio.NewReader(conn); ; {
					command := readWords(r)
					if len(command) == 0 {
						return
					}
					if _, err := io.WriteString(conn, answer(command)); err != nil {
						return
					}
				}
			}()
		}
	}()
	return l.Addr().String()
}

// readWords reads a command, whose words have no line ends; nil: there are no more.
func readWords(r *bufio.Reader) (words []string) {
	n := 0
	if _, err := fmt.Fscanf(r, "*%d\r\n", &n); err != nil {
		return nil
	}
	for range n {
		_, _ = r.ReadString('\n') // its length
		word, err := r.ReadString('\n')
		if err != nil {
			return nil
		}
		words = append(words, strings.TrimSpace(word))
	}
	return words
}

// TestNode_AnswersOfSentinelsAgeWhileTheyAreRead: they count from when the sentinels were asked. Here ten seconds pass before the server
// that they named has told its role.
func TestNode_AnswersOfSentinelsAgeWhileTheyAreRead(t *testing.T) {
	var now atomic.Int64
	addr := sentinelAndMaster(t, func() { now.Add(int64(2 * confirmFor)) })
	s, err := New(Options{
		Nodes: servers(t, "redis://"+addr+"?master_set=m"), Log: slog.New(slog.DiscardHandler),
		Now: func() time.Duration { return time.Hour + time.Duration(now.Load()) },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(0)
	s.startTracking()
	n := s.Members[0]
	within(t, "the sentinel has answered", func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.tracker.hasFound
	})
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.masterErrLocked(); err != errUnconfirmed {
		t.Errorf("an answer that is twice as old as it may be: %v", err)
	}
}
