package resp_test

import (
	"fmt"

	"github.com/lockproxy/lockproxy/backends/resp"
)

func ExampleScanner() {
	s := resp.Scanner{Limits: &resp.Limits{Depth: 4}}
	for _, read := range []string{"+OK\r\n$3\r", "\nfoo\r\n", "*1\r\n:42\r\n"} {
		for p := []byte(read); len(p) > 0; {
			n, done, err := s.Scan(p)
			fmt.Printf("%-12q kind %q, whole %v, error %v\n", p[:n], s.Kind(), done, err)
			p = p[n:]
		}
	}
	// Output:
	// "+OK\r\n"    kind '+', whole true, error <nil>
	// "$3\r"       kind '$', whole false, error <nil>
	// "\nfoo\r\n"  kind '$', whole true, error <nil>
	// "*1\r\n:42\r\n" kind '*', whole true, error <nil>
}
