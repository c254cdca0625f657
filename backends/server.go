// Package backends knows where a Redis lives: its address, TLS and credentials,
// parsed from one URL, and the nodes that are behind that.
//
// It opens two kinds of connection: bare ones, whose bytes the caller relays
// ([Server.Dial]), and rueidis clients, for questions the proxy asks on its own
// behalf ([Server.Client]). A Server is immutable and safe for concurrent use.
//
// A [Finder] asks where the nodes of a replicated Redis or a Cluster are, again and
// again; its goroutines have ended when its Run returns. The package starts no others.
package backends

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// DefaultDialTimeout bounds the opening of one connection, unless the URL says
// otherwise (dial_timeout=…).
const DefaultDialTimeout = 2 * time.Second

// DefaultWriteTimeout is how long a server may take nothing of what is sent to it, unless the
// URL says otherwise (write_timeout=…). A server that is only slow to answer takes
// what comes, or rather its kernel does, up to some megabytes.
const DefaultWriteTimeout = 30 * time.Second

// A Server is one Redis as a URL names it. A URL may also name several addresses, of
// one upstream's nodes or of its sentinels; such a Server is only good for a [Finder].
type Server struct {
	opt  rueidis.ClientOption
	name string
	id   string // of id=…
}

// Parse reads a Redis URL: redis://, rediss:// or unix://, with user, password
// and database, in the form of [rueidis.ParseURL]: further addresses as addr=…, and
// the name by which sentinels know a master as master_set=…. id=… is its [Server.Identity].
// A bare host:port is taken as redis://host:port. An error about a URL that may hold a password gives no
// reason: the reason could repeat a part of it. Without its host, redis://:secret, or
// with a # that is not percent-encoded, the password is where a port or a name should be.
func Parse(raw string) (*Server, error) {
	secret := strings.ContainsAny(raw, "@?#")
	if !strings.Contains(raw, "://") {
		raw = "redis://" + raw
	}
	opt, err := rueidis.ParseURL(raw)
	switch {
	case err != nil && (secret || errors.As(err, new(*url.Error))), misread(raw):
		return nil, errors.New("not a Redis URL (not repeated, as it may hold a password, whose special characters must be percent-encoded)")
	case err != nil:
		return nil, fmt.Errorf("not a Redis URL: %w", err)
	case opt.SelectDB < 0:
		return nil, fmt.Errorf("not a Redis URL: database %d is negative", opt.SelectDB)
	case strings.HasPrefix(raw, "unix:") && (len(opt.InitAddress) > 1 || opt.Sentinel.MasterSet != ""):
		return nil, errors.New("not a Redis URL: a socket is one server, and no sentinel")
	}
	opt.InitAddress = distinct(opt.InitAddress)
	if opt.Dialer.Timeout == 0 {
		opt.Dialer.Timeout = DefaultDialTimeout
	}
	u, err := url.Parse(raw)
	if err != nil {
		return nil, errors.New("not a Redis URL")
	}
	id := u.Query().Get("id")
	if strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r > '~' }) || len(id) > maxID {
		return nil, fmt.Errorf("not a Redis URL: id= has spaces or other than printable ASCII, or more than %d bytes", maxID)
	}
	return &Server{opt: opt, name: opt.InitAddress[0], id: id}, nil
}

const maxID = 100

// ID is what others call the same server too: id=… in the URL, else the name by which
// sentinels know it or its address, with the database if that is not 0.
func (s *Server) ID() string {
	if s.id != "" {
		return s.id
	}
	id := cmp.Or(s.MasterSet(), s.name)
	if s.opt.SelectDB != 0 {
		id += fmt.Sprintf("/%d", s.opt.SelectDB)
	}
	return id
}

// misread says that what was meant for a password is read as something else: a
// fragment, or a query whose @ ended the credentials.
func misread(raw string) bool {
	u, err := url.Parse(raw)
	return err == nil && (strings.Contains(raw, "#") || u.User == nil && strings.Contains(u.RawQuery, "@") && !strings.Contains(u.RawQuery, "password="))
}

// distinct is list without what comes again, in its order. The caller owns it.
func distinct(list []string) (out []string) {
	for _, s := range list {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// String is the address, host:port or socket path, without user or password; of
// several addresses all, and the master set.
func (s *Server) String() string {
	if s.MasterSet() != "" {
		return s.MasterSet() + " of " + strings.Join(s.opt.InitAddress, " ")
	}
	return strings.Join(s.opt.InitAddress, " ")
}

// Single says that the URL names one address, and not as a sentinel's.
func (s *Server) Single() bool { return len(s.opt.InitAddress) == 1 && s.MasterSet() == "" }

// MasterSet is the name by which the servers at the addresses, sentinels, know the
// master; empty: they are no sentinels.
func (s *Server) MasterSet() string { return s.opt.Sentinel.MasterSet }

// Credentials are the user and password of the URL; both may be empty.
func (s *Server) Credentials() (user, password string) { return s.opt.Username, s.opt.Password }

// Secure says that connections are made over TLS.
func (s *Server) Secure() bool { return s.opt.TLSConfig != nil }

// WithTLS is the same server, reached with t: it must show a certificate that
// t.CA or the system's authorities signed, and is shown t.Own. It is s itself if
// that is not Secure.
func (s *Server) WithTLS(t *TLS) *Server {
	if !s.Secure() {
		return s
	}
	opt := s.opt
	opt.DialCtxFn = func(ctx context.Context, addr string, d *net.Dialer, base *tls.Config) (net.Conn, error) {
		return (&tls.Dialer{NetDialer: d, Config: t.dialing(base)}).DialContext(ctx, "tcp", addr)
	}
	return &Server{opt: opt, name: s.name, id: s.id}
}

// WriteTimeout is for how long a connection made by Dial may have bytes on their way
// that the server does not take, before it is given up: write_timeout=… in the URL,
// or [DefaultWriteTimeout].
func (s *Server) WriteTimeout() time.Duration {
	if s.opt.ConnWriteTimeout > 0 {
		return s.opt.ConnWriteTimeout
	}
	return DefaultWriteTimeout
}

// DB is the database number of the URL.
func (s *Server) DB() int { return s.opt.SelectDB }

// Dial opens a bare connection, over TLS if the URL says so, and sends nothing on
// it. It ends with ctx, and after [DefaultDialTimeout] at the latest.
func (s *Server) Dial(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, s.opt.Dialer.Timeout)
	defer cancel()
	d := s.opt.Dialer
	if s.opt.DialCtxFn != nil {
		return s.opt.DialCtxFn(ctx, s.name, &d, s.opt.TLSConfig)
	}
	if s.opt.TLSConfig != nil {
		return (&tls.Dialer{NetDialer: &d, Config: s.opt.TLSConfig}).DialContext(ctx, "tcp", s.name)
	}
	return d.DialContext(ctx, "tcp", s.name)
}

// Client makes a rueidis client with one pipelined connection, on which commands
// execute in the order they were given; nothing is retried and nothing cached. It
// does not need the server to be up: commands fail until it is, and then succeed.
// tune, if not nil, may change the options first (tests replace DialCtxFn).
func (s *Server) Client(tune func(*rueidis.ClientOption)) (rueidis.Client, error) {
	opt := s.opt
	opt.ForceSingleClient = true
	opt.PipelineMultiplex = -1
	opt.AlwaysPipelining = true
	opt.DisableCache = true
	opt.DisableRetry = true
	opt.ReadBufferEachConn = 32 << 10
	opt.WriteBufferEachConn = 32 << 10
	opt.ClientSetInfo = rueidis.DisableClientSetInfo
	if opt.ClientName == "" {
		opt.ClientName = "lockproxy"
	}
	if tune != nil {
		tune(&opt)
	}
	vetting(s.name, &opt)
	c, err := rueidis.NewClient(opt)
	if c == nil {
		return nil, fmt.Errorf("%s: %w", s.name, err)
	}
	return c, nil // with ForceSingleClient a failed first dial still gives a client
}

// Unverified says that a connection over TLS is made to whoever answers, without a look
// at the certificate: skip_verify=true in the URL.
func (s *Server) Unverified() bool { return s.Secure() && s.opt.TLSConfig.InsecureSkipVerify }
