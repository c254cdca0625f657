package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// An attack is what many or rude clients do to a proxy.
type attack struct {
	label string
	n     int      // connections, at full scale
	args  []string // the proxy's
	tls   bool
	begin func(a *siege) error // the connections are there
	storm bool                 // instead of connections that stay: as many as can be, one after another
}

var attacks = []attack{
	{label: "idle", n: 10_000},
	{label: "idle, TLS", n: 5_000, tls: true},
	{label: "half a command, a byte each 5 s", n: 10_000, begin: (*siege).drip},
	{label: "63 KB of a line that does not end", n: 2_000, begin: func(s *siege) error { return s.sayAll(strings.Repeat("x", 63<<10)) }},
	{label: "512 MB announced, 1 byte sent", n: 10_000, begin: func(s *siege) error { return s.sayAll("*1048576\r\n$536870912\r\nx") }},
	{label: "no TLS handshake", n: 5_000, tls: true, begin: func(*siege) error { return nil }},
	{label: "16 MB asked for, nothing read", n: 50, args: []string{"--max-output", "4mb"}, begin: (*siege).askMuch},
	{label: "the same with --upstream-conns 0", n: 50, args: []string{"--max-output", "4mb", "--upstream-conns", "0"}, begin: (*siege).askMuch},
	{label: "LOCK WAIT, 100 names", n: 100_000, begin: (*siege).wait},
	{label: "connect, PING, close", n: 8, storm: true},
	{label: "connect, PING, close, TLS", n: 8, storm: true, tls: true},
}

// measureBounds has a GET and a LOCK client measure their latency without and with
// attacks, in turns.
func measureBounds(p plan, page *report) error {
	most := raiseFiles(300_000)
	page.linef("\n## Hostile clients\n")
	page.linef("Five masters, one proxy. Beside each attack one client sends GET and another LOCK and UNLOCK, one command at a time, with no attack (before, after) and during it: ratios are during over the mean of both. Memory is the proxy's (VmRSS); a connection's share is what was added, by their number.\n")
	page.table("attack", "connections", "memory MB", "during MB", "KB a connection", "GET p50 ms", "during", "ratio", "p99 ms", "during", "LOCK+UNLOCK p50 ms", "during", "ratio", "of it")
	for _, a := range attacks {
		if err := a.measure(p, int(most)-200, page); err != nil {
			return fmt.Errorf("%s: %w", a.label, err)
		}
	}
	return nil
}

// raiseFiles lets this process, and those it starts, have so many files open, or as many as
// the machine allows, and returns how many.
func raiseFiles(n uint64) uint64 {
	var now syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &now) != nil {
		return 1024
	}
	if syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: max(n, now.Max), Max: max(n, now.Max)}) == nil {
		return max(n, now.Max)
	}
	_ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: now.Max, Max: now.Max}) // what children inherit
	return now.Max
}

// A siege is an attack that goes on.
type siege struct {
	*ground
	tls   *tls.Config // nil: plain text
	conns []net.Conn
	ended chan struct{}
	going sync.WaitGroup
	count atomic.Int64 // connections of a storm
}

// measure is one row; most is how many connections there can be.
func (a *attack) measure(p plan, most int, page *report) error {
	dir, err := os.MkdirTemp("", "bounds")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s := &siege{ended: make(chan struct{})}
	args := append([]string{"--max-clients", "200000", "--max-waiters", "100000", "--node-timeout", "2s"}, a.args...)
	if a.tls {
		cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
		if s.tls, err = selfSigned(cert, key); err != nil {
			return err
		}
		args = append(args, "--tls-cert", cert, "--tls-key", key)
	}
	if s.ground, err = openGround(5, args...); err != nil {
		return err
	}
	defer s.close()
	n := min(most, max(1, int(float64(a.n)*p.scale)))
	quiet, err := s.witness(p.slice)
	if err != nil {
		return err
	}
	before, _, err := memoryOf(s.proxy.PID())
	if err != nil {
		return err
	}
	defer s.end()
	if err := s.start(a, n); err != nil {
		return err
	}
	during, err := s.witness(2 * p.slice)
	if err != nil {
		return err
	}
	now, _, err := memoryOf(s.proxy.PID())
	if err != nil {
		return err
	}
	of := fmt.Sprintf("%d there", len(s.conns))
	if a.storm {
		of = fmt.Sprintf("%.0f/s", float64(s.count.Load())/(2*p.slice).Seconds())
	}
	s.end()
	after, err := s.witness(p.slice)
	if err != nil {
		return err
	}
	quiet.add(after)
	share := "–"
	if !a.storm {
		share = fmt.Sprintf("%.1f", float64(now-before)/float64(n)/1e3)
	}
	g, l := quantile(quiet.get, .5), quantile(quiet.lock, .5)
	dg, dl := quantile(during.get, .5), quantile(during.lock, .5)
	page.row(a.label, fmt.Sprint(n), megabytes(before), megabytes(now), share,
		inMillis(g), inMillis(dg), ratio(dg.Seconds(), g.Seconds()), inMillis(quantile(quiet.get, .99)), inMillis(quantile(during.get, .99)),
		inMillis(l), inMillis(dl), ratio(dl.Seconds(), l.Seconds()), of)
	return nil
}

// A testimony is what well-behaved clients saw.
type testimony struct{ get, lock []time.Duration }

func (t *testimony) add(o testimony) {
	t.get, t.lock = append(t.get, o.get...), append(t.lock, o.lock...)
}

// witness is a GET client and a LOCK client for d.
func (s *siege) witness(d time.Duration) (t testimony, err error) {
	var g errgroup.Group
	g.Go(func() error {
		return s.again(d, &t.get, []string{"GET", "key"})
	})
	g.Go(func() error {
		return s.again(d, &t.lock, []string{"LOCK", "witness", "30s", "OWNER", "w"}, []string{"UNLOCK", "witness", "w"})
	})
	return t, g.Wait()
}

// again sends commands one by one for d, and notes how long they take together.
func (s *siege) again(d time.Duration, took *[]time.Duration, commands ...[]string) error {
	nc, err := s.dial(0)
	if err != nil {
		return err
	}
	defer nc.Close()
	c := redistest.NewConn(nc)
	for end := time.Now().Add(d); time.Now().Before(end); {
		start := time.Now()
		for _, args := range commands {
			v, err := c.Try(args...)
			if err == nil && v.IsError() && !strings.HasPrefix(v.Text, "NOQUORUM ") {
				err = errors.New(v.Text)
			}
			if err != nil {
				return err
			}
		}
		*took = append(*took, time.Since(start))
	}
	return nil
}

// dial opens the i-th connection; of one address there are 28,000 ports.
func (s *siege) dial(i int) (net.Conn, error) {
	d := net.Dialer{Timeout: 30 * time.Second, LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(1+i/20_000))}, Control: lateBind}
	nc, err := d.Dial("tcp", s.proxy.Addr())
	if err != nil || s.tls == nil {
		return nc, err
	}
	secured := tls.Client(nc, s.tls)
	if err := secured.Handshake(); err != nil {
		nc.Close()
		return nil, err
	}
	return secured, nil
}

// lateBind leaves the choice of a local port to connect, which may take one that another
// attack's connection, to another proxy, has just given back.
func lateBind(_, _ string, c syscall.RawConn) (err error) {
	if failed := c.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
	}); failed != nil {
		return failed
	}
	return err
}

// start opens the connections of an attack and begins it.
func (s *siege) start(a *attack, n int) error {
	if a.storm {
		for i := range n {
			s.going.Go(func() { s.rush(i) })
		}
		return nil
	}
	handshake := s.tls
	if a.begin != nil && a.tls {
		s.tls = nil
	}
	s.conns = make([]net.Conn, n)
	var g errgroup.Group
	g.SetLimit(16)
	for i := range n {
		g.Go(func() (err error) {
			s.conns[i], err = s.dial(i)
			return err
		})
	}
	err := g.Wait()
	if s.tls = handshake; err != nil || a.begin == nil {
		return err
	}
	return a.begin(s)
}

// end ends what is under way. It may come again.
func (s *siege) end() {
	select {
	case <-s.ended:
		return
	default:
	}
	close(s.ended)
	for _, c := range s.conns {
		if c != nil {
			_ = c.Close()
		}
	}
	s.going.Wait()
}

// sayAll says the same on every connection.
func (s *siege) sayAll(text string) error {
	for _, c := range s.conns {
		if _, err := io.WriteString(c, text); err != nil {
			return err
		}
	}
	return nil
}

// drip says half a command on every connection, and then a byte now and then.
func (s *siege) drip() error {
	if err := s.sayAll("*2\r\n$3\r\nGET\r\n$1000\r\nx"); err != nil {
		return err
	}
	s.going.Go(func() {
		pause := time.NewTicker(10 * time.Millisecond)
		defer pause.Stop()
		for at, share := 0, max(1, len(s.conns)/500); ; {
			select {
			case <-s.ended:
				return
			case <-pause.C:
			}
			for range share {
				_, _ = io.WriteString(s.conns[at], "x") // one that is closed is of no interest
				at = (at + 1) % len(s.conns)
			}
		}
	})
	return nil
}

// askMuch asks for more than a connection's buffers take, and reads nothing.
func (s *siege) askMuch() error {
	c, err := redistest.Dial(s.data.Addr())
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.Try("SET", "big", strings.Repeat("v", 1<<20)); err != nil {
		return err
	}
	return s.sayAll(strings.Repeat(redistest.Command("GET", "big"), 16))
}

// wait waits for locks that somebody has.
func (s *siege) wait() error {
	const names = 100
	c, err := redistest.Dial(s.proxy.Addr())
	if err != nil {
		return err
	}
	s.conns = append(s.conns, c.Conn)
	for i := range names {
		if err := keepOne(c, fmt.Sprint("wanted:", i), 60*time.Second); err != nil {
			return err
		}
	}
	for i, w := range s.conns[:len(s.conns)-1] {
		if _, err := io.WriteString(w, redistest.Command("LOCK", fmt.Sprint("wanted:", i%names), "30s", "WAIT", "10m")); err != nil {
			return err
		}
	}
	return allWait(c, len(s.conns)-1)
}

// allWait returns when n LOCKs wait at the proxy that c is connected to.
func allWait(c *redistest.Conn, n int) error {
	want := fmt.Sprintf("waiting:%d\r", n)
	for range 1200 {
		v, err := c.Try("INFO", "lockproxy")
		if err != nil {
			return err
		}
		if strings.Contains(v.Text, want) {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return fmt.Errorf("not %d LOCKs wait", n)
}

// rush connects, says PING, and leaves, again and again.
func (s *siege) rush(lane int) {
	for {
		select {
		case <-s.ended:
			return
		default:
		}
		nc, err := s.dial(20_000 * (1 + lane))
		if err != nil {
			continue
		}
		if _, err := redistest.NewConn(nc).Try("PING"); err == nil {
			s.count.Add(1)
		}
		if tcp, ok := nc.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // a port in TIME_WAIT is of no use to the next one
		}
		_ = nc.Close()
	}
}
