package seats

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/lockproxy/lockproxy/backends/locks"
)

var job = locks.Key{Name: "job"}

// first and last are chance that always takes the first, or the last, of what there is.
func first(int) int      { return 0 }
func last(below int) int { return below - 1 }

func newBook(t *testing.T, size int) *Book {
	t.Helper()
	b, err := NewBook(size)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// picks wants a Book to propose a seat, whether chance takes the first or the last; it must not be one that was freed.
func picks(t *testing.T, b *Book, permits int, want ...int) {
	t.Helper()
	got := []int{b.Pick(job, permits, first), b.Pick(job, permits, last)}
	if !slices.Equal(got, want) {
		t.Errorf("of %d permits the first and the last by chance are %v, not %v", permits, got, want)
	}
}

func TestNamed(t *testing.T) {
	for _, c := range []struct {
		hold  string
		seat  int
		named string
	}{
		{"TAGTAGTAGTAGTAG1.id", 0, "TAGTAGTAGTAGTAG1.id/0"}, {"id", 999, "id/999"}, {"id", None, "id"}, {"id", Any, "id"},
	} {
		named := Named(c.hold, c.seat)
		if named != c.named {
			t.Errorf("Named(%q, %d) is %q, not %q", c.hold, c.seat, named, c.named)
		}
		want := c.seat
		if want < 0 {
			want = None
		}
		if got := Of(named); got != want {
			t.Errorf("Of(%q) is %d, not %d", named, got, want)
		}
	}
	for _, hold := range []string{"", "id", "id/", "id/x", "id/1x", "/"} {
		if got := Of(hold); got != None {
			t.Errorf("Of(%q) is %d: there is no seat", hold, got)
		}
	}
}

// TestFreeBy: a seat may be free at need nodes if so many name it, together with the nodes that have not answered.
func TestFreeBy(t *testing.T) {
	for _, c := range []struct {
		lists  [][]int
		others int
		want   []int // by chance one of these
	}{
		{nil, 5, []int{Any}},
		{[][]int{{}, {}, {}}, 0, []int{Any}},
		{[][]int{{1, 2}, {2}, {2, 3}}, 0, []int{2}},
		{[][]int{{1, 2}, {2, 1}, {1}}, 0, []int{1}}, // two are too few for 2
		{[][]int{{1, 2}, {2, 1}, {1, 2}, {}, {}}, 0, []int{1, 2}},
		{[][]int{{0}, {0}, {1}}, 0, []int{Any}},
		{[][]int{{0}, {0}, {1}}, 1, []int{0}},    // the other one may find it free as well
		{[][]int{{0}, {0}, {1}}, 2, []int{0, 1}}, // so may two others
		{[][]int{{4}}, 4, []int{4}},
		{[][]int{{4}, {}}, 3, []int{4}},
		{[][]int{{}, {}}, 3, []int{Any}}, // that none has named is not free
	} {
		var got []int
		for i := range c.want {
			got = append(got, FreeBy(c.lists, c.others, 3, func(below int) int { return min(i, below-1) }))
		}
		beyond := FreeBy(c.lists, c.others, 3, last)
		if slices.Sort(got); !slices.Equal(got, c.want) || !slices.Contains(c.want, beyond) {
			t.Errorf("%v and %d others: %v, or %d, not %v", c.lists, c.others, got, beyond, c.want)
		}
	}
}

// TestBook_Pick: the seat that was freed last is proposed, once; else one that is not known to be taken; else any.
func TestBook_Pick(t *testing.T) {
	b := newBook(t, 10)
	picks(t, b, 3, 0, 2)
	b.Took(job, 0)
	b.Took(job, 2)
	picks(t, b, 3, 1, 1)
	picks(t, b, 5, 1, 4)
	b.Took(job, 1)
	picks(t, b, 3, 0, 2) // they may have been given back elsewhere
	b.Freed(job, 2)
	b.Freed(job, 0)
	picks(t, b, 3, 0, 2) // what was freed last
	picks(t, b, 3, 0, 2) // and then what is open
	b.Freed(job, 2)
	picks(t, b, 2, 0, 0) // there are fewer permits now
	picks(t, b, 3, 2, 2) // it was not forgotten
}

func TestBook_Notes(t *testing.T) {
	b := newBook(t, 10)
	for range 3 {
		b.Freed(job, 1) // it is one seat, however often it was freed
	}
	b.Freed(job, 0)
	b.Took(job, 1)
	if got := b.Pick(job, 9, last); got != 0 {
		t.Errorf("%d is proposed: it was taken after it was freed", got)
	}
	for _, none := range []int{Any, None} {
		b.Took(job, none)
		b.Freed(job, none)
	}
	if got := b.Pick(job, 2, last); got != 0 {
		t.Errorf("%d is proposed, and only 1 was taken", got)
	}
	reading := job
	reading.Reader = "alice"
	b.Took(reading, 0)
	picks(t, b, 3, 2, 2) // the seats of a name, whoever has them
	other := locks.Key{DB: 1, Name: "job"}
	if got := b.Pick(other, 3, first); got != 0 {
		t.Errorf("%d is proposed of a name of which nothing is known", got)
	}
}

// TestBook_Size: of the names that were not used for longest nothing is remembered.
func TestBook_Size(t *testing.T) {
	if _, err := NewBook(0); err == nil {
		t.Error("a book for no names")
	}
	b := newBook(t, 2)
	for i := range 3 {
		b.Took(locks.Key{Name: fmt.Sprint("n", i)}, 0)
	}
	for i, want := range []int{0, 1, 1} {
		if i > 0 {
			if got := b.Pick(locks.Key{Name: fmt.Sprint("n", i)}, 2, first); got != want {
				t.Errorf("of n%d %d is proposed, not %d", i, got, want)
			}
		}
	}
	if got := b.Pick(locks.Key{Name: "n0"}, 2, first); got != 0 {
		t.Errorf("of n0 %d is proposed: it should have been forgotten", got)
	}
}

// TestBook_Together: it is used by all requests at once.
func TestBook_Together(t *testing.T) {
	b := newBook(t, 3)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for j := range 200 {
				k := locks.Key{Name: fmt.Sprint("n", (i+j)%5)}
				seat := b.Pick(k, 4, last)
				if seat < 0 || seat >= 4 {
					t.Errorf("seat %d of 4", seat)
				}
				b.Took(k, seat)
				b.Freed(k, seat)
			}
		})
	}
	all.Wait()
}
