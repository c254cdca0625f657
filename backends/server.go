// Package backends answers where a Redis lives: its address, TLS and credentials, from
// one URL, and how to connect to it.
//
// A [Server] opens two kinds of connection: bare ones, whose bytes the caller relays
// ([Server.Dial]), and rueidis clients for commands of the proxy's own
// ([Server.Client]). What rueidis reads is checked first, as it trusts lengths that a
// server announces. A Server is immutable and safe for concurrent use; [TLS] reads its
// certificate files again when they change. The package starts no goroutines.
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

// DefaultDialTimeout bounds the opening of one connection, unless the URL has a
// dial_timeout=….
const DefaultDialTimeout = 2 * time.Second

// DefaultWriteTimeout is how long a server may accept no bytes before a connection to
// it is given up, unless the URL has a write_timeout=…. The kernel of a server that is
// only slow to answer accepts up to some megabytes.
const DefaultWriteTimeout = 30 * time.Second

// A Server is one Redis as a URL names it. A URL may also name several addresses, of
// one upstream's nodes or of its sentinels: such a Server is a seed for package
// topology, and is not connected to itself.
type Server struct {
	opt  rueidis.ClientOption
	name string // the first address
	id   string // id=… in the URL; may be empty
}

// Parse reads a Redis URL: redis://, rediss:// or unix://, with user, password
// and database, in the form of [rueidis.ParseURL]: further addresses as addr=…, and
// sentinels' name of the master as master_set=…. id=… is the [Server.ID]. A bare
// host:port means redis://host:port.
//
// The error about a URL that may hold a password gives no reason, which could repeat a
// part of it: without a host, as in redis://:secret, or with a # that is not
// percent-encoded, the password is where a port or a name should be.
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
	case strings.Contains(opt.InitAddress[0], ",") && !strings.HasPrefix(raw, "unix:"):
		return nil, errors.New("not a Redis URL: a list with commas; give each server with a flag of its own, or with a space between them in a variable")
	case opt.SelectDB < 0:
		return nil, fmt.Errorf("not a Redis URL: database %d is negative", opt.SelectDB)
	case strings.HasPrefix(raw, "unix:") && (len(opt.InitAddress) > 1 || opt.Sentinel.MasterSet != ""):
		return nil, errors.New("not a Redis URL: a socket is one server, and no sentinel")
	}
	opt.InitAddress = Distinct(opt.InitAddress)
	opt.Dialer.Timeout = cmp.Or(opt.Dialer.Timeout, DefaultDialTimeout)
	if opt.DialCtxFn == nil { // not a socket
		opt.DialCtxFn = dialTCP
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

// ID is the name that all proxies use for the server: id=… in the URL, else its master
// set or its address, with the database if that is not 0.
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

// misread reports whether a password was probably read as something else: a
// fragment, or a query whose @ was meant to end the credentials.
func misread(raw string) bool {
	u, err := url.Parse(raw)
	return err == nil && (strings.Contains(raw, "#") || u.User == nil && strings.Contains(u.RawQuery, "@") && !strings.Contains(u.RawQuery, "password="))
}

// Distinct is list in its order without repetitions; the caller owns it.
func Distinct(list []string) (out []string) {
	for _, s := range list {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// String is the address, host:port or socket path, without user or password; if there
// are several addresses or a master set, all of these.
func (s *Server) String() string {
	if s.MasterSet() != "" {
		return s.MasterSet() + " of " + strings.Join(s.opt.InitAddress, " ")
	}
	return strings.Join(s.opt.InitAddress, " ")
}

// Addresses are those of the URL, without repetitions; the caller owns them.
func (s *Server) Addresses() []string { return slices.Clone(s.opt.InitAddress) }

// Single reports whether the URL names one address, and no master set.
func (s *Server) Single() bool { return len(s.opt.InitAddress) == 1 && s.MasterSet() == "" }

// MasterSet is the sentinels' name of the master; empty: the addresses are not those
// of sentinels.
func (s *Server) MasterSet() string { return s.opt.Sentinel.MasterSet }

// Credentials are the user and password of the URL; both may be empty.
func (s *Server) Credentials() (user, password string) { return s.opt.Username, s.opt.Password }

// Secure reports whether connections are made over TLS.
func (s *Server) Secure() bool { return s.opt.TLSConfig != nil }

// WithTLS is the same server, reached with t: it must show a certificate that
// t.CA or the system's authorities signed, and is shown t.KeyPair. It is s itself if
// s is not Secure.
func (s *Server) WithTLS(t *TLS) *Server {
	if !s.Secure() {
		return s
	}
	opt := s.opt
	opt.DialCtxFn = func(ctx context.Context, addr string, d *net.Dialer, base *tls.Config) (net.Conn, error) {
		return dialTCP(ctx, addr, d, t.dialing(base))
	}
	return &Server{opt: opt, name: s.name, id: s.id}
}

// WithCredentials is the same server with another user and password; both may be empty.
func (s *Server) WithCredentials(user, password string) *Server {
	opt := s.opt
	opt.Username, opt.Password = user, password
	return &Server{opt: opt, name: s.name, id: s.id}
}

// At is the server at another host:port with the same credentials, TLS, database and
// timeouts, and no master set.
func (s *Server) At(addr string) *Server {
	opt := s.opt
	opt.InitAddress = []string{addr}
	opt.Sentinel.MasterSet = ""
	if strings.Contains(s.name, "/") {
		opt.DialCtxFn = dialTCP
	}
	if host, _, err := net.SplitHostPort(addr); err == nil && opt.TLSConfig != nil {
		opt.TLSConfig = opt.TLSConfig.Clone()
		opt.TLSConfig.ServerName = host
	}
	return &Server{opt: opt, name: addr}
}

// WriteTimeout is how long a connection made by Dial may have unacknowledged bytes
// before the caller should give it up: write_timeout=… in the URL, or
// [DefaultWriteTimeout].
func (s *Server) WriteTimeout() time.Duration {
	return cmp.Or(max(s.opt.ConnWriteTimeout, 0), DefaultWriteTimeout)
}

// DB is the database number of the URL.
func (s *Server) DB() int { return s.opt.SelectDB }

// Dial opens a bare connection, over TLS if s is Secure, and sends nothing on it. It
// gives up when ctx ends, or after dial_timeout=… or [DefaultDialTimeout].
func (s *Server) Dial(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, s.opt.Dialer.Timeout)
	defer cancel()
	d := s.opt.Dialer
	return s.opt.DialCtxFn(ctx, s.name, &d, s.opt.TLSConfig)
}

// dialTCP connects to host:port, over TLS unless t is nil.
func dialTCP(ctx context.Context, addr string, d *net.Dialer, t *tls.Config) (net.Conn, error) {
	if t == nil {
		return d.DialContext(ctx, "tcp", addr)
	}
	return (&tls.Dialer{NetDialer: d, Config: t}).DialContext(ctx, "tcp", addr)
}

// Client makes a rueidis client with one pipelined connection, on which commands
// execute in the order of the calls; it retries nothing and caches nothing. The server
// need not be up: commands fail until it is, and then succeed. tune, if not nil, may
// change the options first. The caller closes the client.
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
	opt.ClientName = cmp.Or(opt.ClientName, "lockproxy")
	if tune != nil {
		tune(&opt)
	}
	guardDial(s.name, &opt)
	c, err := rueidis.NewClient(opt)
	if c == nil {
		return nil, fmt.Errorf("%s: %w", s.name, err)
	}
	return c, nil // despite err: with ForceSingleClient a failed first dial still gives a client
}

// Unverified reports whether connections over TLS accept any certificate:
// skip_verify=true in the URL.
func (s *Server) Unverified() bool { return s.Secure() && s.opt.TLSConfig.InsecureSkipVerify }
