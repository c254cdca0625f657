package adopt

import "time"

// A Burst is the latest commands of one client that had all come when the first of them ran, and of which none has
// done more than ask about adopted locks. The zero Burst begins with the next command. Each command but such a one
// ends it, and so does whatever is read from the client.
//
// It is for clients that send everything over one connection, and poll: one question to the nodes answers a burst of
// them. Each reply rests on an answer that is not older than its command, and none on one that is older than what
// the client has changed before.
type Burst struct{ began time.Time }

// Since is when the burst began.
func (b *Burst) Since() time.Time {
	if b.began.IsZero() {
		b.began = time.Now()
	}
	return b.began
}
