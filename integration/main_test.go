package integration

import (
	"os"
	"testing"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

func TestMain(m *testing.M) {
	code := m.Run()
	redistest.RemoveBinary()
	os.Exit(code)
}
