// Package tempredis stands in for a module of that name that starts redis-servers. Its servers are the databases
// of one server at host:port REDIS: each forwards connections that have selected its database.
package tempredis

import (
	"cmp"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
)

// Config is that of a redis-server. Only the port is heeded.
type Config map[string]string

// A Server is a database.
type Server struct {
	database  int64
	socket    string
	listeners [2]net.Listener
}

var started atomic.Int64

// Start listens on the port of the configuration and on a socket.
func Start(c Config) (*Server, error) {
	dir, err := os.MkdirTemp("", "tempredis-")
	if err != nil {
		return nil, err
	}
	s := &Server{database: started.Add(1), socket: filepath.Join(dir, "socket")}
	if s.listeners[0], err = net.Listen("unix", s.socket); err != nil {
		return nil, err
	}
	if s.listeners[1], err = net.Listen("tcp", "127.0.0.1:"+cmp.Or(c["port"], "0")); err != nil {
		return nil, err
	}
	for _, l := range s.listeners {
		go s.serve(l)
	}
	return s, nil
}

// Socket is the path of the socket.
func (s *Server) Socket() string { return s.socket }

// Term ends the server. Connections to it end with its clients.
func (s *Server) Term() error {
	for _, l := range s.listeners {
		_ = l.Close()
	}
	return os.RemoveAll(filepath.Dir(s.socket))
}

func (s *Server) serve(l net.Listener) {
	for {
		client, err := l.Accept()
		if err != nil {
			return
		}
		go s.forward(client)
	}
}

func (s *Server) forward(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", os.Getenv("REDIS"))
	if err != nil {
		panic(err)
	}
	defer server.Close()
	fmt.Fprintf(server, "SELECT %d\r\n", s.database)
	reply := make([]byte, len("+OK\r\n"))
	if _, err := io.ReadFull(server, reply); err != nil || !strings.HasPrefix(string(reply), "+OK") {
		panic(fmt.Sprintf("SELECT %d: %q %v", s.database, reply, err))
	}
	go func() {
		defer server.Close()
		_, _ = io.Copy(server, client)
	}()
	_, _ = io.Copy(client, server)
}
