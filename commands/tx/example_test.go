package tx_test

import (
	"fmt"

	"github.com/lockproxy/lockproxy/commands/tx"
)

func Example() {
	var s tx.State
	db := 7
	begun := s.Begin() // MULTI was sent
	s.Add(tx.Changes{DB: &db})
	ended := s.End(false) // EXEC was sent
	fmt.Println(s.In, s.Unsure)

	begun([]byte("+OK\r\n"))
	ended([]byte("*1\r\n+OK\r\n"))
	if c := s.Resolve(); c.DB != nil {
		fmt.Println("the client is in database", *c.DB)
	}
	// Output:
	// false true
	// the client is in database 7
}
