package quorum

import (
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks/voters"
	"github.com/lockproxy/lockproxy/scripts"
)

// TestRecovery_NewNodeThatAnswersLate: of new nodes one answers the first probe when the answers of the others are too old to enlist
// them. All are enlisted all the same, or none: one alone would make the others nodes that forgot, which sit out max-ttl and longer.
func TestRecovery_NewNodeThatAnswersLate(t *testing.T) {
	t.Parallel()
	for _, late := range []time.Duration{0, 400 * time.Millisecond, 900 * time.Millisecond, 1200 * time.Millisecond} {
		inBubble(t, 3, testOptions{NodeTimeout: patient, Bootstrap: voters.BootstrapStrict}, func(t *testing.T, s *timeless) {
			time.Sleep(100 * time.Millisecond)
			s.opts.Bootstrap = voters.BootstrapAuto
			s.delay(2, scripts.State, late)
			first := s.another(t)
			time.Sleep(50 * time.Millisecond) // it has asked
			s.delay(2, nil, 0)
			time.Sleep(3 * time.Second)
			if now := states(first.proxy); !allVoting(first.proxy) {
				t.Errorf("%v late: %s", late, now)
			}
		})
	}
}

// TestRecovery_LookWhileAnotherProxyEnlists: a proxy that has seen all nodes without a record for a while, and now sees that some have one,
// does not take the others for nodes that forgot: they are being enlisted.
func TestRecovery_LookWhileAnotherProxyEnlists(t *testing.T) {
	t.Parallel()
	inBubble(t, 3, testOptions{NodeTimeout: patient, Bootstrap: voters.BootstrapStrict}, func(t *testing.T, s *timeless) {
		s.sleepUntil(450 * time.Millisecond)
		s.delay(0, scripts.State, 300*time.Millisecond) // of the look to come; the other nodes answer that they have no record
		s.sleepUntil(550 * time.Millisecond)
		s.delay(1, scripts.Register, 400*time.Millisecond)
		s.opts.Bootstrap = voters.BootstrapAuto
		s.another(t)
		time.Sleep(50 * time.Millisecond)
		s.delay(1, nil, 0)
		time.Sleep(3 * time.Second)
		if !allVoting(s.proxy) {
			t.Error(states(s.proxy))
		}
	})
}
