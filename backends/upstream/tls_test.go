package upstream

import (
	"crypto/tls"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// Connections are closed with the pool's mu held: an upstream that hangs must not
// block it, although TLS sends an alert when it closes.
func TestConn_CloseDoesNotWaitForTLS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := redistest.NewAuthority(t)
		pair, err := tls.LoadX509KeyPair(ca.Issue(t, "upstream"))
		if err != nil {
			t.Fatal(err)
		}
		near, far := net.Pipe() // buffers nothing
		server := tls.Server(far, &tls.Config{Certificates: []tls.Certificate{pair}, SessionTicketsDisabled: true})
		client := tls.Client(near, ca.Client(t, "", ""))
		failed := make(chan error, 1)
		go func() { failed <- server.Handshake() }()
		if err := errors.Join(client.Handshake(), <-failed); err != nil {
			t.Fatal(err)
		}
		c := newConn(nil, client, true)
		go c.read()
		start := time.Now()
		c.Close()
		if took := time.Since(start); took != 0 {
			t.Errorf("Close waited %v", took)
		}
	})
}
