package clients

import (
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/clients/visits"
	"github.com/lockproxy/lockproxy/integration/redistest"
)

// TestAdopted_PageViews is the page-view scenario with the program that everybody writes first: two services in
// Java behind a round-robin balancer, 666 requests at once, each counted under Redisson's getLock(key).lock().
func TestAdopted_PageViews(t *testing.T) {
	if os.Getenv(adoptedSwitch) == "" {
		t.Skipf("fetches lock libraries; set %s=1", adoptedSwitch)
	}
	for _, r := range redissons {
		t.Run(r.version, func(t *testing.T) {
			plain := redistest.Start(t)
			count, alone := viewPage(t, r.installed, plain, [2]string{plain.Addr(), plain.Addr()}, nil)
			if count != updates {
				t.Fatalf("one Redis: %d of %d views: the program is wrong", count, updates)
			}

			s := newAdoptedSite(t, "lock:*")
			count, took := viewPage(t, r.installed, s.data, s.addrs(), func() {
				s.nodes[0].Kill()
				s.nodes[1].Kill()
			})
			if count != updates {
				t.Errorf("%d of %d views", count, updates)
			}
			t.Logf("one Redis %.1fs, two proxies %.1fs", alone.Seconds(), took.Seconds())

			s = newAdoptedSite(t, "lock:* guard=no")
			if count, _ = viewPage(t, r.installed, s.data, [2]string{s.proxies[0].Addr(), s.data.Addr()}, nil); count == updates {
				t.Errorf("%d views although a service went past the proxies: the test cannot fail", count)
			}
			t.Logf("past the proxies: %d views are lost", updates-count)
		})
	}
}

// viewPage has 666 people look at a page that a service counts at each of these addresses, and calls atThird, if not
// nil, when a third was counted. It returns how many were, and in which time.
func viewPage(t *testing.T, installed func() (string, error), data *redistest.Server, addrs [2]string, atThird func()) (count int64, took time.Duration) {
	t.Helper()
	dir, err := installed()
	if err != nil {
		t.Fatal(err)
	}
	data.Do(t, "SET", "counter", "0")
	var services []*updater
	for _, addr := range addrs {
		services = append(services, startUpdater(t, dir, redissonProgram("PageViews"), addr, 0))
	}
	lb := balancer(t, services)

	watched := watchCount(t, data, atThird)
	took = visits.AtOnce(t, lb, updates, updateTimeout)
	watched()
	for _, s := range services {
		fmt.Fprintln(s.in)
	}
	return data.Do(t, "GET", "counter").Int(), took
}

// balancer sends requests to the services in turns, each of which has said where it is.
func balancer(t *testing.T, services []*updater) string {
	t.Helper()
	var backends []*url.URL
	for _, s := range services {
		line := s.line()
		u, err := url.Parse(line)
		if err != nil || !strings.HasPrefix(line, "http") {
			t.Fatalf("%s %s %v", line, s.rest(), err)
		}
		backends = append(backends, u)
	}
	return visits.Balance(t, backends, updates)
}

// watchCount calls atThird, if not nil, when a third was counted. The function that it returns ends that.
func watchCount(t *testing.T, data *redistest.Server, atThird func()) (stop func()) {
	if atThird == nil {
		return func() {}
	}
	var called atomic.Bool
	over := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		for {
			select {
			case <-over:
				return
			case <-time.After(20 * time.Millisecond):
			}
			if data.Do(t, "GET", "counter").Int() >= updates/3 {
				called.Store(true)
				atThird()
				return
			}
		}
	})
	return func() {
		close(over)
		watching.Wait()
		if !called.Load() {
			t.Error("all was over before a third was counted")
		}
	}
}
