package admin

import (
	"crypto/sha256"
	"crypto/subtle"
	"mime"
	"net"
	"net/http"
	"net/netip"
)

// withSecurityHeaders sets the headers of all responses, and limits the body of requests. The
// page loads nothing from other origins, has no inline script or style, and allows no frame.
func withSecurityHeaders(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		next.ServeHTTP(w, r)
	})
}

// requireOperator passes on requests of operators, but not those that a page of another site
// makes in an operator's browser.
func (s *Server) requireOperator(next http.Handler) http.Handler {
	var origin http.CrossOriginProtection
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.authorized(w, r) {
			return
		}
		if err := origin.Check(r); err != nil {
			http.Error(w, "this request comes from a page of another site: "+err.Error(), http.StatusForbidden)
			return
		}
		if isCrossSiteLoad(r) {
			http.Error(w, "a page of another site loads this", http.StatusForbidden)
			return
		}
		if r.Method != http.MethodGet && r.Method != http.MethodHead && !isJSON(r) {
			http.Error(w, "what changes something is sent as application/json", http.StatusUnsupportedMediaType)
			return
		}
		s.conns.protect(r)
		next.ServeHTTP(w, r)
	})
}

// authorized reports whether a request is an operator's. If not, it has responded.
func (s *Server) authorized(w http.ResponseWriter, r *http.Request) bool {
	switch {
	case s.opt.Password != "":
		return s.authenticated(w, r)
	case !s.loopbackOnly:
		http.Error(w, "this address can be reached from other machines and no admin-password is set: only /healthz, /readyz and /metrics are served", http.StatusForbidden)
	case !isAddressOrLocalhost(r.Host):
		http.Error(w, "without admin-password the server is called by its address or as localhost, not by a name that somebody else may have given it", http.StatusForbidden)
	default:
		return true
	}
	return false
}

// authenticated reports whether a request has the password. If not, it has responded.
func (s *Server) authenticated(w http.ResponseWriter, r *http.Request) bool {
	client := clientNetwork(r)
	if s.logins.blocked(client) {
		w.Header().Set("Retry-After", "60")
		http.Error(w, "too many wrong passwords from this address; wait a minute", http.StatusTooManyRequests)
		return false
	}
	_, password, given := r.BasicAuth()
	if given && equalSecrets(password, s.opt.Password) {
		s.logins.reset(client)
		return true
	}
	if given {
		s.logins.failed(client)
		s.opt.Log.Warn("wrong password for the admin server", "from", r.RemoteAddr, "path", r.URL.Path)
	}
	w.Header().Set("WWW-Authenticate", `Basic realm="lockproxy", charset="UTF-8"`)
	http.Error(w, "needs the admin-password, with any user name", http.StatusUnauthorized)
	return false
}

// equalSecrets compares in a time that does not depend on want, nor on its length.
func equalSecrets(got, want string) bool {
	g, w := sha256.Sum256([]byte(got)), sha256.Sum256([]byte(want))
	return subtle.ConstantTimeCompare(g[:], w[:]) == 1
}

// clientNetwork identifies a client for the login throttle: its address without the port, or
// the /64 network of an IPv6 address, all of which one client may have. It is empty for a
// Unix socket.
func clientNetwork(r *http.Request) string {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return ""
	}
	ip := at.Addr().Unmap().WithZone("")
	if ip.Is4() {
		return ip.String()
	}
	network, _ := ip.Prefix(64) // an IPv6 address has 64 bits
	return network.String()
}

// isAddressOrLocalhost reports whether host is safe from DNS rebinding: an address, localhost
// or nothing.
func isAddressOrLocalhost(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	if n := len(host); n > 1 && host[0] == '[' && host[n-1] == ']' {
		host = host[1 : n-1]
	}
	_, err := netip.ParseAddr(host)
	return err == nil || host == "localhost" || host == ""
}

// isCrossSiteLoad reports whether a page of another site loads a URL as a part of itself. That page could not read it,
// but cause work: a profile takes a minute. Following a link to it is allowed.
func isCrossSiteLoad(r *http.Request) bool {
	site, mode := r.Header.Get("Sec-Fetch-Site"), r.Header.Get("Sec-Fetch-Mode")
	return (site == "cross-site" || site == "same-site") && mode != "navigate"
}

func isJSON(r *http.Request) bool {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && kind == "application/json"
}
