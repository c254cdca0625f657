package proxy

import (
	"context"
	"crypto/tls"
	"net"
	"time"
)

// handshakeTime is how long a client may take to agree on TLS.
const handshakeTime = 10 * time.Second

// secure returns nc after the TLS handshake, or nc itself if clients speak plain text. ok is false, and nc
// closed, if the handshake fails, takes longer than handshakeTime, or the server drains.
func (s *Server) secure(nc net.Conn) (_ net.Conn, ok bool) {
	if s.opt.TLS == nil {
		return nc, true
	}
	ctx, cancel := context.WithTimeout(s.draining, handshakeTime)
	defer cancel()
	secured := tls.Server(nc, s.opt.TLS)
	if err := secured.HandshakeContext(ctx); err != nil {
		nc.Close()
		s.unsecured.Add(1)
		s.opt.Log.Debug("TLS handshake failed", "client", nc.RemoteAddr().String(), "error", err)
		return nil, false
	}
	return secured, true
}
