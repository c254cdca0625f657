package locks

import "time"

// A Queue is the line for one name at this proxy.
type Queue struct {
	Key
	Waiters int
	Longest time.Duration // how long the head of the line has waited
	Next    string        // the owner for whom the head of the line waits
	Holder  string        // the last holder that the head was told of; empty: none
}

// Queues are the longest queues at this proxy, at most so many; total is how many queues there are.
func (s *Service) Queues(most int) (longest []Queue, total int) {
	lines, total := s.waiting.Longest(most, Key.Compare)
	for _, l := range lines {
		longest = append(longest, Queue{
			Key: l.Key, Waiters: l.Len, Longest: l.Head.Waiting, Next: l.Head.Value.Owner, Holder: l.Known.Holder,
		})
	}
	return longest, total
}
