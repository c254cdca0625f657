package clients

import (
	"os"
	"testing"
	"time"
)

// TestAdopted_Symfony: Symfony's locks promise through two proxies what they promise at one Redis.
func TestAdopted_Symfony(t *testing.T) {
	if os.Getenv(adoptedSwitch) == "" {
		t.Skipf("needs PHP and Symfony's locks; set %s=1", adoptedSwitch)
	}
	dir, err := adoptedPHP()
	if err != nil {
		t.Fatal(err)
	}
	s := newAdoptedSite(t, "lock:*")
	for _, at := range []struct{ here, there, reads string }{
		{s.data.Addr(), s.data.Addr(), "as ever"},
		{s.proxies[0].Addr(), s.proxies[1].Addr(), "refused"},
	} {
		cmd, cancel := bounded(time.Minute, "php", "promises.php")
		defer cancel()
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "REDIS="+at.here, "OTHER="+at.there, "READ_LOCKS="+at.reads)
		if out, err := cmd.CombinedOutput(); err != nil || string(out) != "kept\n" {
			t.Errorf("%s and %s: %v, %s", at.here, at.there, err, out)
		}
	}
}
