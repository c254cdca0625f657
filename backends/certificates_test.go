package backends

import (
	"bytes"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

func TestReadCertificates_Faults(t *testing.T) {
	ca := redistest.NewAuthority(t)
	cert, key := ca.Issue(t, "a")
	_, other := ca.Issue(t, "b")
	none := filepath.Join(t.TempDir(), "none")
	broken := write(t, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
	pair := func(cert, key string) error { _, err := ReadKeyPair(cert, key); return err }
	roots := func(file string) error { _, err := ReadAuthorities(file); return err }
	tests := []struct {
		name string
		err  error
		want string // all of it but what the system says; empty: no error
	}{
		{"a pair", pair(cert, key), ""},
		{"no certificate file", pair(none, key), none},
		{"no key file", pair(cert, none), none},
		{"key for a certificate", pair(key, key), key + " holds no certificate in PEM"},
		{"certificate for a key", pair(cert, cert), cert + " holds no private key in PEM"},
		{"another's key", pair(cert, other), cert + " and " + other + ": private key does not match public key"},
		{"not PEM", pair(write(t, "hello"), key), "holds no certificate in PEM"},
		{"a broken certificate", pair(broken, key), broken + ": certificate 1: "},
		{"authorities", roots(ca.File), ""},
		{"no authority", roots(none), none},
		{"key for an authority", roots(key), key + " holds no certificate in PEM"},
		{"a directory", roots(t.TempDir()), "is a directory"},
	}
	for _, tt := range tests {
		if (tt.err == nil) != (tt.want == "") || tt.err != nil && !strings.Contains(tt.err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, tt.err, tt.want)
		}
	}
}

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "f.pem")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCertificates_ChangedFilesAreReadAgain(t *testing.T) {
	ca := redistest.NewAuthority(t)
	cert, key := ca.Issue(t, "a")
	pair, err := ReadKeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	log := slog.New(slog.NewTextHandler(&said, nil))
	lines := func() int { return strings.Count(said.String(), "\n") }

	first := pair.get(log)
	if pair.get(log) != first || lines() != 0 {
		t.Fatalf("files that did not change were read again: %s", said.String())
	}

	if err := os.WriteFile(cert, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if pair.get(log) != first {
			t.Error("a broken file took effect")
		}
	}
	if lines() != 1 || !strings.Contains(said.String(), "holds no certificate") {
		t.Errorf("a broken file, asked for twice, is to be said once:\n%s", said.String())
	}

	if err := os.Remove(key); err != nil {
		t.Fatal(err)
	}
	if pair.get(log) != first || lines() != 2 {
		t.Errorf("without a file there must be the last good value, and one more line:\n%s", said.String())
	}

	ca.Issue(t, "a")
	if renewed := pair.get(log); renewed == first || renewed.Leaf.SerialNumber.Cmp(first.Leaf.SerialNumber) <= 0 || lines() != 3 {
		t.Errorf("renewed files did not take effect:\n%s", said.String())
	}
}

// The time of a file tells it from another of the same size.
func TestCertificates_ChangedFileOfTheSameSize(t *testing.T) {
	path := write(t, "aaa")
	w := reloaded[string]{files: []string{path}, parse: func(_ []string, texts [][]byte) (string, error) { return string(texts[0]), nil }}
	if err := w.read(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("bbb"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, time.Time{}, time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	if got := w.get(slog.New(slog.DiscardHandler)); got != "bbb" {
		t.Errorf("got %q", got)
	}
}

func TestTLS_ServerConfig(t *testing.T) {
	ours, strangers := redistest.NewAuthority(t), redistest.NewAuthority(t)
	own := keyPair(t, ours, "server")
	cert, key := ours.Issue(t, "client")
	oldest := ours.Client(t, "", "")
	oldest.MinVersion, oldest.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	older := ours.Client(t, cert, key)
	older.MaxVersion = tls.VersionTLS12
	scert, skey := strangers.Issue(t, "client")
	tests := []struct {
		name   string
		server *TLS
		client *tls.Config
		ok     bool
	}{
		{"no certificate asked for", &TLS{KeyPair: own}, ours.Client(t, "", ""), true},
		{"client trusts others", &TLS{KeyPair: own}, strangers.Client(t, "", ""), false},
		{"TLS 1.1", &TLS{KeyPair: own}, oldest, false},
		{"required and shown", &TLS{KeyPair: own, CA: authorities(t, ours)}, ours.Client(t, cert, key), true},
		{"required and shown, TLS 1.2", &TLS{KeyPair: own, CA: authorities(t, ours)}, older, true},
		{"required, not shown", &TLS{KeyPair: own, CA: authorities(t, ours)}, ours.Client(t, "", ""), false},
		{"required, a stranger's", &TLS{KeyPair: own, CA: authorities(t, ours)}, ours.Client(t, scert, skey), false},
	}
	for _, tt := range tests {
		if err := handshake(t, tt.server.ServerConfig(), tt.client); (err == nil) != tt.ok {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

// A withdrawn authority counts from the next connection on, also for a client that
// resumes a session.
func TestTLS_WithdrawnAuthority(t *testing.T) {
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		t.Run(tls.VersionName(version), func(t *testing.T) { withdrawAuthority(t, version) })
	}
}

func withdrawAuthority(t *testing.T, version uint16) {
	t.Helper()
	ours, others := redistest.NewAuthority(t), redistest.NewAuthority(t)
	server := &TLS{KeyPair: keyPair(t, ours, "server"), CA: authorities(t, ours), Log: slog.New(slog.DiscardHandler)}
	conf := server.ServerConfig()
	cert, key := ours.Issue(t, "client")
	client := ours.Client(t, cert, key)
	var resumed atomic.Bool
	client.VerifyConnection = func(s tls.ConnectionState) error { resumed.Store(s.DidResume); return nil }
	client.MaxVersion = version
	client.ClientSessionCache = tls.NewLRUClientSessionCache(8)
	for range 2 {
		if err := handshake(t, conf, client); err != nil {
			t.Fatal(err)
		}
	}
	if !resumed.Load() {
		t.Fatal("the second connection did not resume the session of the first")
	}
	text, err := os.ReadFile(others.File)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(ours.File, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := handshake(t, conf, client); err == nil {
		t.Error("a client of a withdrawn authority was let in")
	}
}

// handshake is the server's error on one connection of the client, over which one byte
// goes each way.
func handshake(t *testing.T, server, client *tls.Config) error {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		nc, err := tls.Dial("tcp", ln.Addr().String(), client)
		if err != nil {
			return
		}
		defer nc.Close()
		nc.Read(make([]byte, 1)) // takes the tickets in, if there are any
		nc.Write([]byte("x"))
	}()
	raw, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	nc := tls.Server(raw, server)
	defer nc.Close()
	nc.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := nc.Write([]byte("x")); err != nil {
		return err
	}
	_, err = io.ReadFull(nc, make([]byte, 1))
	return err
}
