package locks

import "time"

// A Queue is the line for one name at this proxy.
type Queue struct {
	Key
	Waiters int
	Longest time.Duration // how long the head of the line has waited
	Next    string        // the owner that the head waits for
	Holder  string        // the last that it was told of; empty: nobody
}

// Queues are the longest queues at this proxy, at most so many, and how many there are.
func (s *Service) Queues(most int) (longest []Queue, total int) {
	lines, total := s.waiting.Longest(most, Key.compare)
	for _, l := range lines {
		longest = append(longest, Queue{
			Key: l.Key, Waiters: l.Len, Longest: l.Head.Waiting, Next: l.Head.Value.Owner, Holder: l.Known.Holder,
		})
	}
	return longest, total
}
