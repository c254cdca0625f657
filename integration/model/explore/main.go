package explore

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"time"
)

// A Rule is one that a search may do without.
type Rule struct {
	Name, About string
	Take        func() // takes it away
}

// A Variant is sound rules R without one, in a world C that bounds a search.
type Variant[R, C any] struct {
	Name, About string
	Take        func(*R) // takes it away
	Breaks      string   // the promise that this costs
	World       *C       // in which that shows; nil: no search found one, or it is too large for a test
}

// Without is a Variant, by its fields.
func Without[R, C any](name, about string, take func(*R), breaks string, world *C) Variant[R, C] {
	return Variant[R, C]{name, about, take, breaks, world}
}

// RulesOf are the rules that a search may do without; taking one away changes r.
func RulesOf[R, C any](variants []Variant[R, C], r *R) (all []Rule) {
	for _, v := range variants {
		all = append(all, Rule{Name: v.Name, About: v.About, Take: func() { v.Take(r) }})
	}
	return all
}

// Main is the rest of a command whose own flags are defined: it defines -limit and -broken, takes the
// named rules away, searches, and prints the trace and a summary. It ends the process with 2
// if there is no such rule, and with 0 after -broken list.
func Main(rules []Rule, search func(limit int) Result) Result {
	limit := flag.Int("limit", 30_000_000, "states to visit at most")
	broken := flag.String("broken", "", "rules to take away, by commas; 'list' names them")
	flag.Parse()
	if *broken == "list" {
		for _, r := range rules {
			fmt.Printf("%-16s %s\n", r.Name, r.About)
		}
		os.Exit(0)
	}
	for _, name := range strings.FieldsFunc(*broken, func(r rune) bool { return r == ',' }) {
		if !takeAway(rules, name) {
			fmt.Fprintf(os.Stderr, "no rule is called %q; -broken list names them\n", name)
			os.Exit(2)
		}
	}
	start := time.Now()
	res := search(*limit)
	for _, line := range res.Trace {
		fmt.Println(line)
	}
	fmt.Println(res.Summary(time.Since(start)))
	return res
}

func takeAway(rules []Rule, name string) bool {
	for _, r := range rules {
		if r.Name == name {
			r.Take()
			return true
		}
	}
	return false
}
