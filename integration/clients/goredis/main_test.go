// Package goredis has programs that use go-redis, with its pools and retries, at real proxies: services that count under a lock, the
// recipes, and clients that go on while proxies are restarted or changed. They lose nothing.
package goredis

import (
	"testing"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }
