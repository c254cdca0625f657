package metrics

import "sync/atomic"

// Traffic counts what goes over connections. It is safe for concurrent use; the zero value
// is ready.
type Traffic struct{ Reads, BytesIn, Writes, BytesOut atomic.Int64 }

// Read counts a read of n bytes, unless there were none.
func (t *Traffic) Read(n int) {
	if n > 0 {
		t.Reads.Add(1)
		t.BytesIn.Add(int64(n))
	}
}

// Wrote counts a write of n bytes, unless there were none.
func (t *Traffic) Wrote(n int) {
	if n > 0 {
		t.Writes.Add(1)
		t.BytesOut.Add(int64(n))
	}
}
