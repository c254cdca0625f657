package faults

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// A link is the way from a proxy to a node: a tap, which knows what is asked for, and
// behind it what time has spoiled.
type link struct {
	*toxiproxy.Proxy
	tap *tap
}

// links are the ways from every proxy to every node: by proxy, then by node.
type links [][]*link

// openLinks has every one of so many proxies reach these addresses over links of its own.
func openLinks(proxies int, to []string) (links, error) {
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	all := make(links, proxies)
	for p := range all {
		for n, addr := range to {
			l := toxiproxy.NewProxy(server, fmt.Sprintf("%d-%d", p, n), "127.0.0.1:0", addr)
			if err := l.Start(); err != nil {
				all.close()
				return nil, err
			}
			t, err := openTap(l.Listen)
			if err != nil {
				l.Stop()
				all.close()
				return nil, err
			}
			all[p] = append(all[p], &link{l, t})
		}
	}
	return all, nil
}

func (all links) close() {
	for _, of := range all {
		for _, l := range of {
			_ = l.tap.Close()
			l.Stop()
		}
	}
}

// some are the links between a proxy and a node; -1 stands for all.
func (all links) some(proxy, node int) (some []*link) {
	for p, of := range all {
		for n, l := range of {
			if (proxy < 0 || proxy == p) && (node < 0 || node == n) {
				some = append(some, l)
			}
		}
	}
	return some
}

// spoil begins a fault of links and returns what ends it. A partition and a half-open link
// swallow what is sent; the connection breaks when they end, as one does that was cut off
// for long. A delay delivers everything, later.
func (all links) spoil(f fault) (end func() error, err error) {
	some := all.some(f.a, f.b)
	if f.kind == "cut" {
		for _, l := range some {
			l.Stop()
		}
		return func() (err error) {
			for _, l := range some {
				err = errors.Join(err, l.Start())
			}
			return err
		}, nil
	}
	ways := []string{"upstream", "downstream"}
	if f.way != "" {
		ways = []string{f.way}
	}
	kind, attributes := "timeout", `"timeout":0`
	if f.kind == "delay" {
		kind, attributes = "latency", fmt.Sprintf(`"latency":%d,"jitter":%[1]d`, f.amount.Milliseconds()/2)
	}
	for _, l := range some {
		for _, way := range ways {
			_, err := l.Toxics.AddToxicJson(strings.NewReader(fmt.Sprintf(`{"name":%q,"type":%q,"stream":%[1]q,"attributes":{%[3]s}}`, way, kind, attributes)))
			if err != nil {
				return nil, err
			}
		}
	}
	return func() (err error) {
		for _, l := range some {
			for _, way := range ways {
				err = errors.Join(err, l.Toxics.RemoveToxic(context.Background(), way))
			}
		}
		return err
	}, nil
}
