// Package visits sends many requests for one page at once, through a balancer in front of the services that answer them.
package visits

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

// Balance starts a round-robin load balancer in front of services, which keeps as many connections to each as there may be requests at
// once. It returns its URL, and ends with the test.
func Balance(tb testing.TB, services []*url.URL, requests int) string {
	tb.Helper()
	var next atomic.Uint64
	transport := &http.Transport{MaxIdleConnsPerHost: requests}
	tb.Cleanup(transport.CloseIdleConnections)
	lb := httptest.NewServer(&httputil.ReverseProxy{
		Transport: transport,
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(services[next.Add(1)%uint64(len(services))]) },
	})
	tb.Cleanup(lb.Close)
	return lb.URL
}

// AtOnce sends so many requests for a page together, and returns how long it took until the last was answered. One that is not
// answered with 200, or not within timeout, fails the test.
func AtOnce(tb testing.TB, page string, requests int, timeout time.Duration) time.Duration {
	tb.Helper()
	client := &http.Client{Timeout: timeout, Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	var together sync.WaitGroup
	together.Add(requests)
	var g errgroup.Group
	start := time.Now()
	for range requests {
		g.Go(func() error {
			together.Done()
			together.Wait()
			return get(client, page)
		})
	}
	if err := g.Wait(); err != nil {
		tb.Error(err)
	}
	return time.Since(start)
}

func get(client *http.Client, page string) error {
	resp, err := client.Get(page)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, body)
	}
	return err
}
