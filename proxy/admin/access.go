package admin

import (
	"crypto/sha256"
	"crypto/subtle"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
)

// secured sets the headers that hold for all answers. The page loads nothing from
// elsewhere, has no script or style inside its HTML, and is in nobody's frame.
func secured(next http.Handler) http.Handler {
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

// guard lets operators through, and no page of another site that an operator looks at.
func (s *Server) guard(next http.Handler) http.Handler {
	var origin http.CrossOriginProtection
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.admits(w, r) {
			return
		}
		if err := origin.Check(r); err != nil {
			refuse(w, http.StatusForbidden, "this request comes from a page of another site: "+err.Error())
			return
		}
		if isLoadedElsewhere(r) {
			refuse(w, http.StatusForbidden, "a page of another site loads this")
			return
		}
		if r.Method != http.MethodGet && r.Method != http.MethodHead && !isJSON(r) {
			refuse(w, http.StatusUnsupportedMediaType, "what changes something is sent as application/json")
			return
		}
		s.seats.keep(r)
		next.ServeHTTP(w, r)
	})
}

// admits says that a request is an operator's, or answers it.
func (s *Server) admits(w http.ResponseWriter, r *http.Request) bool {
	switch {
	case s.opt.Password != "":
		return s.knows(w, r)
	case !s.local:
		refuse(w, http.StatusForbidden, "this address can be reached from other machines and no admin-password is set: only /healthz, /readyz and /metrics are served")
	case !plainHost(r.Host):
		refuse(w, http.StatusForbidden, "without admin-password the server is called by its address or as localhost, not by a name that somebody else may have given it")
	default:
		return true
	}
	return false
}

// knows says that a request has the password, or answers it.
func (s *Server) knows(w http.ResponseWriter, r *http.Request) bool {
	who := remote(r)
	if s.wrong.many(who) {
		w.Header().Set("Retry-After", "60")
		refuse(w, http.StatusTooManyRequests, "too many wrong passwords from this address; wait a minute")
		return false
	}
	_, password, said := r.BasicAuth()
	if said && same(password, s.opt.Password) {
		s.wrong.forget(who)
		return true
	}
	if said {
		s.wrong.add(who)
		s.opt.Log.Warn("wrong password for the admin server", "from", r.RemoteAddr, "path", r.URL.Path)
	}
	w.Header().Set("WWW-Authenticate", `Basic realm="lockproxy", charset="UTF-8"`)
	refuse(w, http.StatusUnauthorized, "needs the admin-password, with any user name")
	return false
}

// same compares in a time that says nothing about want, not even its length.
func same(got, want string) bool {
	g, w := sha256.Sum256([]byte(got)), sha256.Sum256([]byte(want))
	return subtle.ConstantTimeCompare(g[:], w[:]) == 1
}

// remote is who a client is, for counting: its address without the port, of IPv6 the
// network of it, since one who guesses has all addresses there. A Unix socket's clients
// have none.
func remote(r *http.Request) string {
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

// plainHost says that nobody can have made a browser take host for another site: it is
// an address, localhost, or nothing at all.
func plainHost(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	if n := len(host); n > 1 && host[0] == '[' && host[n-1] == ']' {
		host = host[1 : n-1]
	}
	_, err := netip.ParseAddr(host)
	return err == nil || host == "localhost" || host == ""
}

// isLoadedElsewhere says that a page of another site, as its browser tells, wants this as
// a part of itself. It could not read it, but have work done for it: a profile takes a
// minute. A link is something else.
func isLoadedElsewhere(r *http.Request) bool {
	site, mode := r.Header.Get("Sec-Fetch-Site"), r.Header.Get("Sec-Fetch-Mode")
	return (site == "cross-site" || site == "same-site") && mode != "navigate"
}

func isJSON(r *http.Request) bool {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && kind == "application/json"
}

// refuse answers with a reason, in plain text.
func refuse(w http.ResponseWriter, code int, reason string) {
	http.Error(w, reason, code)
}

// guesses are the wrong passwords of the last minute, by who gave them. Who gave many
// is not listened to until that minute is over. It is safe for concurrent use.
type guesses struct {
	mu sync.Mutex
	by *lru.Cache[string, guess]
}

type guess struct {
	first time.Time
	n     int
}

const (
	guessTime    = time.Minute
	mostGuesses  = 10
	mostGuessers = 1024
)

func newGuesses() *guesses {
	by, _ := lru.New[string, guess](mostGuessers) // fails for no size only
	return &guesses{by: by}
}

func (g *guesses) many(who string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	was, ok := g.by.Get(who)
	return ok && was.n >= mostGuesses && time.Since(was.first) < guessTime
}

func (g *guesses) add(who string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	was, ok := g.by.Get(who)
	if !ok || time.Since(was.first) >= guessTime {
		was = guess{first: time.Now()}
	}
	was.n++
	g.by.Add(who, was)
}

func (g *guesses) forget(who string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.by.Remove(who)
}
