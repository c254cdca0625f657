package request_test

import (
	"fmt"

	"github.com/lockproxy/lockproxy/proxy/request"
)

func ExampleParser() {
	p := request.New(request.Limits{}.Rules())
	defer p.Release()
	for _, read := range []string{"*2\r\n$3\r\nGET\r\n$1\r\nk\r\nPING hel", "lo\r\n"} {
		p.Filled(copy(p.Space(), read))
		for {
			r, ok, err := p.Next()
			if !ok {
				fmt.Println("read on:", err == nil)
				break
			}
			fmt.Printf("%q\n", r.Args)
		}
	}
	// Output:
	// ["GET" "k"]
	// read on: true
	// ["PING" "hello"]
	// read on: true
}
