package etcd

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"os"
	"reflect"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
)

const (
	connsPerMember = 128
	dialTimeout    = 2 * time.Second
	maxAnswer      = 64 << 20
	firstPause     = 20 * time.Millisecond // when no member can be reached; each is twice the one before
	longestPause   = 250 * time.Millisecond

	pathStatus = "maintenance/status"
	pathWatch  = "watch"
	pathRange  = "kv/range"
)

var (
	errTimeout = errors.New("timeout")
	errNoLease = errors.New("the lease is gone") // it never leaves the package
	errForeign = errors.New("a member of another cluster")
)

// A client asks the members of etcd, one at a time: the one that answered last, and the next one when that fails. What it
// sends may so be done twice, and must bear it.
type client struct {
	target     Target
	timeout    time.Duration // of one try
	http       *http.Client  // for what callers wait for
	background *http.Client  // for looks at members, lists and watches: a queue for connections is no reason to think a member down
	scheme     string
	using      atomic.Int64 // the member that is asked first
	leaseGone  func()       // called when a lease is
	cluster    atomic.Value // a string: the id of the cluster that most members have told of last

	yes, no []atomic.Int64 // answers and failures, by member

	token  atomic.Value    // a string: the last one that the user got
	logins []chan struct{} // by member: whoever has it logs in there
}

func newClient(o *Options) *client {
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: 5 * time.Second}
	t := &http.Transport{
		DialContext:         dialer.DialContext,
		TLSHandshakeTimeout: dialTimeout,
		TLSNextProto:        map[string]func(string, *tls.Conn) http.RoundTripper{}, // HTTP/1.1: a member that hangs holds up one call only
		MaxConnsPerHost:     connsPerMember,
		MaxIdleConnsPerHost: connsPerMember,
		IdleConnTimeout:     time.Minute,
	}
	if o.TLS != nil { // certificates may change
		t.DialTLSContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, dialTimeout)
			defer cancel()
			return (&tls.Dialer{NetDialer: dialer, Config: o.TLS()}).DialContext(ctx, network, addr)
		}
	}
	c := &client{target: o.Target, timeout: o.NodeTimeout, http: &http.Client{Transport: t}, background: &http.Client{Transport: t.Clone()}, scheme: "http"}
	if o.Secure {
		c.scheme = "https"
	}
	c.yes, c.no = make([]atomic.Int64, len(o.Members)), make([]atomic.Int64, len(o.Members))
	for range o.Members {
		c.logins = append(c.logins, make(chan struct{}, 1))
	}
	return c
}

func (c *client) close() {
	c.http.CloseIdleConnections()
	c.background.CloseIdleConnections()
}

// A refusal is an answer that another member would give too. It was not done, or there was no space left when it was.
type refusal struct {
	code int
	text string
}

func (e *refusal) Error() string { return e.text }

// An unsent is why nothing was sent.
type unsent struct{ error }

func (e unsent) Unwrap() error { return e.error }

// call is ask for what may be done twice.
func (c *client) call(ctx context.Context, limit time.Duration, path string, ask, answer any) error {
	_, _, err := c.ask(ctx, limit, path, ask, answer)
	return err
}

// ask asks until a member answers, for at most limit. done reports that it may have been done in spite of an error, and late that it may be done
// from now on, once more if there is no error. The error is that of ctx, errNoLease, or a *locks.QuorumError without Op and Name.
func (c *client) ask(ctx context.Context, limit time.Duration, path string, ask, answer any) (done, late bool, err error) {
	body, err := json.Marshal(ask)
	if err != nil {
		return false, false, err
	}
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	failed := make([]error, len(c.target.Members))
	first, pause := c.using.Load(), firstPause
	for try := 0; ; try++ {
		i := int((first + int64(try)) % int64(len(failed)))
		err := c.try(within, i, path, body, answer)
		if of, is := answer.(interface{ cluster() string }); is && err == nil && c.foreign(of.cluster()) {
			reflect.ValueOf(answer).Elem().SetZero() // decoding the next answer leaves fields as they are that it does not have
			err = unsent{errForeign}
		}
		refused, before := (*refusal)(nil), unsent{}
		switch {
		case err == nil:
			if try > 0 {
				c.using.Store(int64(i))
			}
			c.yes[i].Add(1)
			return done, late, nil
		case errors.As(err, &refused):
			done = late || refused.code == codeExhausted
		case !errors.Is(err, errNoLease) && !errors.As(err, &before):
			done, late = true, true
		}
		switch {
		case ctx.Err() != nil:
			return done, late, ctx.Err()
		case errors.Is(err, errNoLease):
			c.leaseGone()
			return done, late, err
		}
		c.no[i].Add(1)
		if failed[i] == nil || within.Err() == nil { // else it was over, and what the member said before tells more
			failed[i] = err
		}
		if refused != nil || within.Err() != nil {
			return done, late, c.quorumError(failed)
		}
		if (try+1)%len(failed) == 0 {
			if locks.Sleep(within, pause) != nil && ctx.Err() != nil {
				return done, late, ctx.Err()
			}
			pause = min(2*pause, longestPause)
		}
	}
}

// foreign reports whether this is not the cluster of most members.
func (c *client) foreign(cluster string) bool {
	of, known := c.cluster.Load().(string)
	return known && cluster != "" && of != cluster
}

// quorumError says which members did not answer, or what one said.
func (c *client) quorumError(failed []error) error {
	e := &locks.QuorumError{Nodes: len(failed), Need: len(failed)/2 + 1}
	for i, err := range failed {
		if err != nil {
			e.Failed = append(e.Failed, &locks.NodeError{Node: c.target.Members[i], Err: err})
		}
	}
	return e
}

// named gives a *locks.QuorumError what it is about.
func named(err error, op, name string) error {
	if few := (*locks.QuorumError)(nil); errors.As(err, &few) {
		few.Op, few.Name = op, name
	}
	return err
}

// mostTokens are tried at a member: another request may have got one elsewhere, which the member does not know yet.
const mostTokens = 3

// try asks one member once, again if it wants another token.
func (c *client) try(ctx context.Context, i int, path string, body []byte, answer any) error {
	old := ""
	for n := 1; ; n++ {
		token, err := c.login(ctx, i, old)
		if err != nil {
			return unsent{err}
		}
		err = c.post(ctx, i, path, token, body, answer)
		if r := (*refusal)(nil); token == "" || n == mostTokens || !errors.As(err, &r) || !isAuth(r) {
			return err
		}
		old = token
	}
}

// isAuth reports whether a token is missing or too old.
func isAuth(r *refusal) bool {
	return r.code == codeUnauthenticated || r.code == codeInvalidArgument && strings.Contains(r.text, "auth")
}

// login is a token of the user, another one than old; empty without a user. Of many who want one at once, one logs in: that costs etcd some 60 ms
// of its CPU, and a hundred at once may cost it its leader.
func (c *client) login(ctx context.Context, i int, old string) (string, error) {
	if c.target.User == "" {
		return "", nil
	}
	known := func() string {
		token, _ := c.token.Load().(string)
		return token
	}
	if token := known(); token != old {
		return token, nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	select {
	case c.logins[i] <- struct{}{}:
		defer func() { <-c.logins[i] }()
	case <-ctx.Done():
		return "", errTimeout
	}
	if token := known(); token != old {
		return token, nil
	}
	body, err := json.Marshal(authRequest{c.target.User, c.target.Password})
	if err != nil {
		return "", err
	}
	var a authResponse
	if err := c.post(ctx, i, "auth/authenticate", "", body, &a); err != nil {
		return "", err
	}
	c.token.Store(a.Token)
	return a.Token, nil
}

// post asks one member once.
func (c *client) post(ctx context.Context, i int, path, token string, body []byte, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	resp, err := c.send(ctx, i, path, token, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(answer); err != nil {
		return plain(err)
	}
	return nil
}

// send is post up to the answer. Its body, which the caller closes, is one of success.
func (c *client) send(ctx context.Context, i int, path, token string, body []byte) (*http.Response, error) {
	sent := false
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { sent = true }})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.scheme+"://"+c.target.Members[i]+"/v3/"+path, bytes.NewReader(body))
	if err != nil {
		return nil, unsent{errors.New("its address cannot be used")}
	}
	req.Header.Set("Content-Type", "application/json")
	if token != "" {
		req.Header.Set("Authorization", token)
	}
	by := c.http
	if path == pathStatus || path == pathWatch || path == pathRange {
		by = c.background
	}
	resp, err := by.Do(req)
	switch {
	case err != nil && !sent:
		return nil, unsent{plain(err)}
	case err != nil:
		return nil, plain(err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, fault(resp)
}

// fault is the error in an answer. Those which are not a *refusal may be another one at the next member, or later.
func fault(resp *http.Response) error {
	var e errorResponse
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	if json.Unmarshal(text, &e) != nil || e.Message == "" && e.Error == "" {
		return errors.New("answers HTTP " + resp.Status)
	}
	said := strings.TrimPrefix(cmp.Or(e.Message, e.Error), "etcdserver: ")
	switch c := e.Code; {
	case c == codeNotFound && strings.Contains(said, "lease"):
		return errNoLease
	case c == codeInvalidArgument, c == codePermission, c == codeUnauthenticated, c == codeExhausted && strings.Contains(said, "space"),
		c == codePrecondition && strings.Contains(said, "auth"): // else the member is a learner, or has just begun
		return &refusal{c, said}
	}
	return errors.New(said)
}

// plain is an error of net/http without what callers know.
func plain(err error) error {
	var timeout net.Error
	if errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout() {
		return errTimeout
	}
	for _, closed := range []error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, closed) {
			return errors.New("connection closed")
		}
	}
	if call := (*os.SyscallError)(nil); errors.As(err, &call) {
		return call.Err
	}
	if op := (*net.OpError)(nil); errors.As(err, &op) {
		return op.Err
	}
	if of := (*url.Error)(nil); errors.As(err, &of) {
		return of.Err
	}
	return err
}
