package admin

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/lockproxy/lockproxy/commands/adopt/observe"
	"github.com/lockproxy/lockproxy/proxy"
)

// maxReport bounds what is read of an answer, in bytes.
const maxReport = 16 << 20

// FetchReport asks an admin server which keys are used as locks, and returns its answer, also as JSON. at is host:port,
// the path of a Unix socket, or a URL of the scheme http or https; password is empty if it needs none.
func FetchReport(ctx context.Context, at, password string) (r observe.Report, text []byte, err error) {
	network, address, target := "unix", at, "http://localhost/page/adopt"
	if strings.HasPrefix(at, "http://") || strings.HasPrefix(at, "https://") {
		u, err := url.Parse(at)
		if err != nil {
			return r, nil, errors.New("the address is no URL")
		}
		network, address = "tcp", net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme]))
		target = u.Scheme + "://" + u.Host + "/page/adopt"
	} else if !proxy.IsSocketPath(at) {
		network, target = "tcp", "http://"+address+"/page/adopt"
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return r, nil, err
	}
	if password != "" {
		q.SetBasicAuth("operator", password)
	}
	answer, text, err := Ask(q, network, address, nil, maxReport)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answers %s: %s", address, answer.Status, strings.TrimSpace(string(text)))
	}
	if err == nil && json.Unmarshal(text, &r) != nil {
		err = fmt.Errorf("%s does not answer with a report", at)
	}
	return r, text, err
}

// Ask sends a request to an admin server at a network address, whatever the URL's host is. It returns the answer and its
// body, of which it reads most bytes at most. config is for https; nil is the default.
func Ask(q *http.Request, network, address string, config *tls.Config, most int64) (answer *http.Response, text []byte, err error) {
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: config,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, address)
		},
	}}
	if answer, err = client.Do(q); err != nil {
		return nil, nil, err
	}
	defer answer.Body.Close()
	text, err = io.ReadAll(io.LimitReader(answer.Body, most))
	return answer, text, err
}
