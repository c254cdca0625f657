package locks

// A Session is a connection that locks are bound to: see LockRequest.Session. It is made
// by NewSession and safe for concurrent use.
type Session struct {
	svc  *Service
	lost func(Loss)
}

// A Loss is a lock that a session kept and can keep no longer.
type Loss struct {
	DB     int
	Name   string
	Owner  string
	Fence  int64
	Reason string // in an operator's words: "expired", "MAXHOLD of 1h is over", ...
}

// NewSession begins a session. lost is told of every lock that cannot be renewed any
// more, before its validity ends where that is possible; it must not block.
func (s *Service) NewSession(lost func(Loss)) *Session {
	return &Session{svc: s, lost: lost}
}

// End gives up what the session has, Options.SessionGrace from now. It does not block,
// and lost is not called any more.
func (k *Session) End() {}

// Abandon stops renewing what the session has, and does not release it: its client may
// still be working. It does not block, and lost is not called any more.
func (k *Session) Abandon() {}
