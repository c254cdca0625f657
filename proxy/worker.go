package proxy

// maxIdleWorkers is how many idle workers are kept for the next request that may wait.
const maxIdleWorkers = 64

// work runs a request that may wait, and then everything that has come meanwhile.
func (s *session) work(raw []byte, args [][]byte) {
	s.cmds.Arrived()
	s.cmds.Run(s.ctx, raw, args)
	s.runRequests()
	s.drainBacklog()
}

// drainBacklog runs the backlog, until the worker has ended or is parked.
func (s *session) drainBacklog() {
	for data := s.takeBacklog(); data != nil; data = s.takeBacklog() {
		s.cmds.Arrived()
		for len(data) > 0 && !s.cmds.Closing() {
			data = s.feed(data)
			s.runRequests()
		}
	}
}

// feed hands the parser a part of data, and returns the rest.
func (s *session) feed(data []byte) (rest []byte) {
	n := copy(s.requests.Space(), data)
	s.requests.Filled(n)
	return data[n:]
}

// takeBacklog takes the backlog. It returns nil if that is empty: then the worker has ended or, while a LOCK
// waits, is parked.
func (s *session) takeBacklog() (data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		answered := s.cmds.Pending()
		switch {
		case len(s.backlog) > 0 && !s.cmds.Closing():
			data, s.backlog = s.backlog, nil
			s.changed.Broadcast()
			return data
		case answered == nil:
			s.requests.Release() // the reader reads ahead until something comes
			s.working = false
			s.backlog = nil
			s.changed.Broadcast()
			return nil
		}
		s.requests.Release()
		if s.parked = s.cmds.NotifyAnswer(s.unpark); s.parked {
			return nil
		}
		s.mu.Unlock()
		s.cmds.Resume(s.ctx)
		s.mu.Lock()
	}
}

// unpark gives a parked worker a goroutine: the LOCK is answered.
func (s *session) unpark() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unparkLocked()
}

func (s *session) unparkLocked() {
	if s.parked {
		s.parked = false
		s.srv.workers.Go(s.drainBacklog)
	}
}

// runRequests runs the requests that have arrived in whole, waiting where it must.
func (s *session) runRequests() {
	for !s.cmds.Closing() {
		s.requests.Restrict(s.cmds.Restricted())
		req, ok, err := s.requests.Next()
		if s.cmds.Pending() != nil && (ok || err != nil) {
			if ok && s.cmds.QueueBehind(s.ctx, req.Raw, req.Args) {
				continue
			}
			if s.awaitLocks(); s.cmds.Closing() {
				break
			}
		}
		if err != nil {
			s.refuse(err)
			break
		}
		switch {
		case !ok:
			if s.cmds.Pending() == nil {
				s.sendPart()
			}
			s.cmds.Flush()
			return
		case req.Rest:
			s.cmds.Rest(req.Raw)
		case !s.cmds.Try(req.Raw, req.Args):
			s.cmds.Run(s.ctx, req.Raw, req.Args)
		}
	}
	s.cmds.Flush()
	s.stop()
}

// awaitLocks returns when no LOCK waits any more.
func (s *session) awaitLocks() {
	for answered := s.cmds.Pending(); answered != nil; answered = s.cmds.Pending() {
		<-answered
		s.cmds.Resume(s.ctx)
	}
}
