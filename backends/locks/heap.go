package locks

import "container/heap"

// A heapElement knows where it is in its heap.
type heapElement[T any] interface {
	before(T) bool
	heapIndex() *int // -1 when it is in no heap
}

// An indexHeap has the first element in front. Its zero value is empty.
type indexHeap[T heapElement[T]] []T

// place adds x, or moves it where it belongs now.
func (h *indexHeap[T]) place(x T) {
	if i := *x.heapIndex(); i >= 0 {
		heap.Fix((*heapOrder[T])(h), i)
		return
	}
	heap.Push((*heapOrder[T])(h), x)
}

// remove takes x out, if it is in.
func (h *indexHeap[T]) remove(x T) {
	if i := *x.heapIndex(); i >= 0 {
		heap.Remove((*heapOrder[T])(h), i)
	}
}

// A heapOrder is the heap.Interface of an indexHeap.
type heapOrder[T heapElement[T]] []T

func (h heapOrder[T]) Len() int           { return len(h) }
func (h heapOrder[T]) Less(i, j int) bool { return h[i].before(h[j]) }

func (h heapOrder[T]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	*h[i].heapIndex(), *h[j].heapIndex() = i, j
}

// Push appends a T.
func (h *heapOrder[T]) Push(x any) {
	e := x.(T)
	*e.heapIndex() = len(*h)
	*h = append(*h, e)
}

// Pop removes the last.
func (h *heapOrder[T]) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	clear((*h)[last:])
	*h, *e.heapIndex() = (*h)[:last], -1
	return e
}
