// Package seats chooses the seat that a LOCK with PERMITS asks for.
//
// With PERMITS k a name has k seats, and who shares it has one of them. So that nodes cannot give one owner different seats, a
// proxy proposes the seat, and the id of a hold names it: a grant is known by the hold whose LOCK it came from, and so
// is its seat. Nodes only say whether the seat is another owner's, and then which are free. What a [Book] remembers saves that
// question, and may be wrong.
package seats

import (
	"slices"
	"strconv"
	"strings"
	"sync"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/lockproxy/lockproxy/backends/locks"
)

// What may stand for the number of a seat.
const (
	Any  = -1 // one that is to be chosen, if there are permits
	None = -2 // the grant has no seat
)

// Named is the id of a hold with the seat that its LOCK asks for.
func Named(hold string, seat int) string {
	if seat < 0 {
		return hold
	}
	return hold + "/" + strconv.Itoa(seat)
}

// Of is the seat that a hold, or a grant, is for; None if it has none.
func Of(hold string) int {
	_, number, found := strings.Cut(hold, "/")
	if !found {
		return None
	}
	seat, err := strconv.Atoi(number)
	if err != nil {
		return None
	}
	return seat
}

// FreeBy is a seat that need nodes may find free, one by chance; Any if there is none. Each of the lists is what one node
// found free that answered at all, and others is the number of the other nodes.
func FreeBy(lists [][]int, others, need int, random func(below int) int) int {
	found := map[int]int{}
	var free []int
	for _, list := range lists {
		for _, seat := range list {
			if found[seat]++; found[seat] == max(1, need-others) {
				free = append(free, seat)
			}
		}
	}
	if len(free) == 0 {
		return Any
	}
	return free[random(len(free))]
}

// A Book remembers which seats this proxy has taken and freed. It is made by NewBook and safe for concurrent use.
type Book struct {
	mu    sync.Mutex
	names *lru.Cache[locks.Key, *name]
}

// A name is what a Book remembers of one.
type name struct {
	taken map[int]bool
	freed []int // the last one last
}

// NewBook makes a Book for so many names, at least one; those that were not used for longest are forgotten.
func NewBook(size int) (*Book, error) {
	names, err := lru.New[locks.Key, *name](size)
	return &Book{names: names}, err
}

// Pick proposes one of a name's seats: the one that was freed last; else one by chance, rather not one that is taken.
func (b *Book) Pick(k locks.Key, permits int, random func(below int) int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.of(k)
	for i, seat := range slices.Backward(n.freed) {
		if seat < permits {
			n.freed = slices.Delete(n.freed, i, i+1)
			return seat
		}
	}
	var open []int
	for seat := range permits {
		if !n.taken[seat] {
			open = append(open, seat)
		}
	}
	if len(open) == 0 {
		return random(permits)
	}
	return open[random(len(open))]
}

// Took notes that a seat was taken through this proxy; a negative one is none.
func (b *Book) Took(k locks.Key, seat int) { b.note(k, seat, true) }

// Freed notes that it was given back.
func (b *Book) Freed(k locks.Key, seat int) { b.note(k, seat, false) }

func (b *Book) note(k locks.Key, seat int, taken bool) {
	if seat < 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.of(k)
	n.freed = slices.DeleteFunc(n.freed, func(s int) bool { return s == seat })
	if taken {
		n.taken[seat] = true
		return
	}
	delete(n.taken, seat)
	n.freed = append(n.freed, seat)
}

// of is what is remembered of a name. The caller has mu.
func (b *Book) of(k locks.Key) *name {
	n, ok := b.names.Get(k.Whole())
	if !ok {
		n = &name{taken: map[int]bool{}}
		b.names.Add(k.Whole(), n)
	}
	return n
}
