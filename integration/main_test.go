package integration

import (
	"testing"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }
