package embedded

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2/server"

	"github.com/lockproxy/lockproxy/backends/resp"
)

// A conn is a connection to a server, as CLIENT LIST shows it. Its server's mu guards it.
type conn struct {
	id          int
	since, last time.Time
	name        string
	libName     string
	libVersion  string
	command     string // the last one
	running     bool   // it has not been answered
	db          int
	proto       int
	queued      int // commands in a transaction; -1: there is none
}

// begin notes that a command has come. It returns nil if that is one of a script, or one
// that handle has passed on.
func (s *Server) begin(p *server.Peer, cmd string) *conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.conns[p]
	switch {
	case c == nil && p.Ctx != nil: // miniredis has given it one before its first command: it is no connection
		return nil
	case c == nil:
		s.lastID++
		c = &conn{id: s.lastID, since: time.Now(), queued: -1}
		s.conns[p] = c
		p.OnDisconnect(func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.conns, p)
		})
	case c.running:
		return nil
	}
	c.running, c.command, c.last, c.proto = true, strings.ToLower(cmd), time.Now(), 2
	if p.Resp3 {
		c.proto = 3
	}
	return c
}

// end notes that a command has been answered.
func (s *Server) end(c *conn, cmd string, args []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.running = false
	switch cmd {
	case "MULTI":
		c.queued = max(c.queued, 0)
		return
	case "EXEC", "DISCARD":
		c.queued = -1
	case "SELECT":
		if len(args) == 1 {
			if n, err := strconv.Atoi(args[0]); err == nil {
				c.db = n
			}
		}
	}
	if c.queued >= 0 {
		c.queued++
	}
}

// blocked is how many connections wait in a blocking command.
func (s *Server) blocked() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		if c.running && commands().blocks(c.command) {
			n++
		}
	}
	return n
}

// client is the reply to CLIENT with these arguments; nil: miniredis runs it.
func (s *Server) client(c *conn, args []string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(args) == 0 {
		return nil
	}
	switch sub, args := strings.ToUpper(args[0]), args[1:]; {
	case sub == "ID" && len(args) == 0:
		return resp.AppendInt(nil, int64(c.id))
	case sub == "INFO" && len(args) == 0:
		return appendText(nil, c.line(s.port), c.proto)
	case sub == "LIST":
		return s.list(c, args)
	case sub == "GETNAME" && len(args) == 0 && c.name == "":
		return resp.AppendNullBulk(nil, c.proto)
	case sub == "GETNAME" && len(args) == 0:
		return resp.AppendBulkString(nil, c.name)
	case sub == "SETNAME" && len(args) == 1 && !strings.ContainsAny(args[0], " \r\n"):
		c.name = args[0]
		return ok()
	case sub == "KILL" && len(args) == 1: // the proxy kills its clients itself, and asks whether that is allowed
		return resp.AppendError(nil, "ERR No such client")
	case sub == "KILL" && len(args) > 0 && len(args)%2 == 0:
		return resp.AppendInt(nil, 0)
	case sub == "SETINFO" && len(args) == 2:
		return c.setInfo(args[0], args[1])
	}
	return nil // miniredis refuses it
}

func (c *conn) setInfo(what, value string) []byte {
	switch strings.ToUpper(what) {
	case "LIB-NAME":
		c.libName = value
	case "LIB-VER":
		c.libVersion = value
	default:
		return resp.AppendError(nil, "ERR Unrecognized option '"+what+"'")
	}
	return ok()
}

// list is the reply to c's CLIENT LIST: all connections, or those selected by TYPE or ID.
func (s *Server) list(c *conn, args []string) []byte {
	selects := func(*conn) bool { return true }
	switch {
	case len(args) == 0:
	case len(args) == 2 && strings.EqualFold(args[0], "TYPE"):
		selects = func(*conn) bool { return strings.EqualFold(args[1], "normal") }
	case len(args) > 1 && strings.EqualFold(args[0], "ID"):
		selects = func(c *conn) bool { return slices.Contains(args[1:], strconv.Itoa(c.id)) }
	default:
		return resp.AppendError(nil, "ERR syntax error")
	}
	var all []*conn
	for _, c := range s.conns {
		if selects(c) {
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b *conn) int { return cmp.Compare(a.id, b.id) })
	var text strings.Builder
	for _, c := range all {
		text.WriteString(c.line(s.port))
	}
	return appendText(nil, text.String(), c.proto)
}

// line is what CLIENT LIST shows of a connection, as far as is known: not from which port it is.
func (c *conn) line(port string) string {
	flags := "N"
	if c.queued >= 0 {
		flags = "x"
	}
	now := time.Now()
	return fmt.Sprintf("id=%d addr=127.0.0.1:0 laddr=127.0.0.1:%s name=%s age=%d idle=%d flags=%s db=%d multi=%d cmd=%s user=default redir=-1 resp=%d lib-name=%s lib-ver=%s\n",
		c.id, port, c.name, int(now.Sub(c.since).Seconds()), int(now.Sub(c.last).Seconds()), flags, c.db, c.queued, c.command, c.proto, c.libName, c.libVersion)
}

// hello is the reply to a HELLO without AUTH; nil: miniredis runs it.
func (s *Server) hello(c *conn, p *server.Peer, args []string) []byte {
	proto := c.proto
	if len(args) > 0 {
		if args[0] != "2" && args[0] != "3" {
			return nil
		}
		proto = int(args[0][0] - '0')
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case len(args) == 3 && strings.EqualFold(args[1], "SETNAME"):
		c.name = args[2]
	case len(args) > 1:
		return nil
	}
	p.Resp3 = proto == 3
	return fields{
		text("server", "redis"), text("version", version),
		{"proto", resp.AppendInt(nil, int64(proto))}, {"id", resp.AppendInt(nil, int64(c.id))},
		text("mode", "standalone"), text("role", "master"), {"modules", resp.AppendArray(nil, 0)},
	}.appendTo(nil, proto)
}
