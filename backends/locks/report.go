package locks

import "github.com/lockproxy/lockproxy/backends/metrics"

// Report implements metrics.Reporter. It asks no node anything.
func (s *Service) Report(r *metrics.Report) {
	s.reportLocks(r, s.Stats())
	s.endless.report(r)
	if st, ok := s.store.(metrics.Reporter); ok {
		st.Report(r)
	}
}

func (s *Service) reportLocks(r *metrics.Report, st Stats) {
	c := &s.counters
	const requests = "LOCKs that were answered: granted; refused, since another owner has the name, also after waiting; failed, for want of a quorum or since their time or client was gone."
	r.Counter("lockproxy_lock_requests_total", requests, c.failures.Load(), "outcome", "failed")
	r.Counter("lockproxy_lock_requests_total", requests, st.Grants, "outcome", "granted")
	r.Counter("lockproxy_lock_requests_total", requests, st.Refusals, "outcome", "refused")
	const shared = "Those of lockproxy_lock_requests_total with SHARED or PERMITS, which do not want the name for themselves: granted; refused, since another owner has it for itself, or waits for it, or there is no permit."
	r.Counter("lockproxy_lock_shared_requests_total", shared, c.sharedGrants.Load(), "outcome", "granted")
	r.Counter("lockproxy_lock_shared_requests_total", shared, c.sharedRefusals.Load(), "outcome", "refused")
	r.Counters("lockproxy_lock_grants_total", "Granted LOCKs by what made them ask: at_once, when they came; handed, behind an UNLOCK at this proxy; woken, by a lock node; timer, when the holder's lease ended or to be safe; own, since their owner had got the name meanwhile.",
		"ground", triggers[:], c.triggers[:])
	r.Counter("lockproxy_lock_reentries_total", "Granted LOCKs of an owner that had the name already.", c.reentries.Load())
	const wait = "From the call of LOCK to its grant or refusal."
	r.Histogram("lockproxy_lock_wait_seconds", wait, &c.grantWait, "outcome", "granted")
	r.Histogram("lockproxy_lock_wait_seconds", wait, &c.refusalWait, "outcome", "refused")
	r.Gauge("lockproxy_lock_waiting", "LOCKs with WAIT that are in line at this proxy.", float64(st.Waiting))
	r.Counter("lockproxy_lock_releases_total", "Holds given back, and repeats of that.", st.Releases)
	r.Counter("lockproxy_lock_renewals_total", "Leases renewed, those of sessions too.", st.Renewals)
	r.Counter("lockproxy_lock_repeats_total", "LOCKs and UNLOCKs with a REQ that had been done before: their first answer was lost.", st.Repeats)
	r.Counter("lockproxy_lock_forces_total", "Locks that an operator took away through this proxy.", st.Forces)
	r.Counter("lockproxy_lock_noquorum_total", "LOCK, RENEW, UNLOCK and LOCKCTL that too few lock nodes answered to decide.", st.NoQuorum)
	r.Counter("lockproxy_lock_splits_total", "Acquisitions in which several owners had some nodes and none a majority; they are tried again.", st.Splits)
	r.Counter("lockproxy_lock_undos_total", "Acquisitions taken back that some lock node may have done.", st.Undos)
	r.Gauge("lockproxy_lock_sessions", "Connections that have locks with SESSION.", float64(st.Sessions))
	r.Gauge("lockproxy_lock_max_hold_seconds", "The setting max-hold: for how long the proxy renews a lock at most. Owners that renew for themselves may have one for longer.", s.options.MaxHold.Seconds())
	r.Gauge("lockproxy_lock_session_holds", "Holds that are kept for connections with SESSION.", float64(st.SessionLocks))
	r.Counter("lockproxy_lock_session_renewals_total", "Renewals of locks with SESSION that a quorum took.", c.sessionRenewals.Load())
	r.Counter("lockproxy_lock_session_misses_total", "Renewals of locks with SESSION that decided nothing, and are tried again while the lease runs.", c.sessionMisses.Load())
	r.Counters("lockproxy_lock_lost_total", "Locks with SESSION that were lost to their holders: expired; forced, by an operator; maxhold, held for as long as allowed; noquorum, too few nodes voted; taken, another owner has it; gone from the nodes.",
		"reason", lossReasons[:], c.losses[:])
}
