package etcd

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

const (
	defaultPort   = "2379"
	defaultPrefix = "lockproxy"
	maxMembers    = 9
	maxPrefix     = 100
)

// A Target is which etcd is used, and what its keys begin with.
type Target struct {
	Members        []string // host:port
	Secure         bool     // over TLS
	User, Password string
	Prefix         string // without the slash that follows it
}

// IsURL reports whether text is meant to be a URL of etcd.
func IsURL(text string) bool {
	return strings.HasPrefix(text, "etcd://") || strings.HasPrefix(text, "etcds://")
}

// Parse reads etcd://user:password@host:port,host:port/prefix; etcds:// is over TLS. Its errors repeat nothing that may be
// a password.
func Parse(text string) (t Target, err error) {
	scheme, rest, _ := strings.Cut(text, "://")
	if t.Secure = scheme == "etcds"; !t.Secure && scheme != "etcd" {
		return t, errors.New("not a URL of etcd; write etcd://host:2379,host:2379,host:2379/prefix, or etcds:// for TLS")
	}
	if strings.ContainsAny(rest, "?#") {
		return t, errors.New("not a URL of etcd: it has a ? or a #, which must be percent-encoded in a password")
	}
	hosts, prefix, _ := strings.Cut(rest, "/")
	if i := strings.LastIndex(hosts, "@"); i >= 0 {
		if t.User, t.Password, err = credentials(hosts[:i]); err != nil {
			return t, err
		}
		hosts = hosts[i+1:]
	}
	if t.Prefix, err = readPrefix(prefix); err != nil {
		return t, err
	}
	for text := range strings.SplitSeq(hosts, ",") {
		m, err := readMember(text)
		switch {
		case err != nil:
			return t, err
		case slices.Contains(t.Members, m):
			return t, fmt.Errorf("not a URL of etcd: %s is named twice", m)
		}
		t.Members = append(t.Members, m)
	}
	if len(t.Members) > maxMembers {
		return t, fmt.Errorf("not a URL of etcd: %d members, %d are the most", len(t.Members), maxMembers)
	}
	return t, nil
}

func credentials(text string) (user, password string, err error) {
	user, password, found := strings.Cut(text, ":")
	user, err = url.PathUnescape(user)
	password, alsoErr := url.PathUnescape(password)
	if err != nil || alsoErr != nil || !found || user == "" {
		return "", "", errors.New("not a URL of etcd: what is before the @ is not user:password, with special characters percent-encoded")
	}
	return user, password, nil
}

func readPrefix(text string) (string, error) {
	text = strings.TrimSuffix(text, "/")
	if text == "" {
		return defaultPrefix, nil
	}
	if len(text) > maxPrefix || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("not a URL of etcd: the prefix is longer than %d bytes, or has others than printable ASCII", maxPrefix)
	}
	return text, nil
}

func readMember(text string) (string, error) {
	if !strings.Contains(text, ":") || strings.HasSuffix(text, "]") {
		text += ":" + defaultPort
	}
	host, port, err := net.SplitHostPort(text)
	if err != nil || host == "" || strings.ContainsAny(host, "/@ ") {
		return "", errors.New("not a URL of etcd: a member is not host or host:port")
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return "", errors.New("not a URL of etcd: a port is not a number")
	}
	return net.JoinHostPort(host, port), nil
}

// String is the members, without user or password.
func (t *Target) String() string { return strings.Join(t.Members, " ") }
