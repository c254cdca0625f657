package cluster_test

import (
	"fmt"

	"github.com/lockproxy/lockproxy/commands/cluster"
)

func ExampleMerger() {
	sum := cluster.Merger(cluster.Sum)
	fmt.Printf("%q\n", sum.Merge([][]byte{[]byte(":2\r\n"), []byte(":40\r\n")}))
	fmt.Printf("%q\n", sum.Merge([][]byte{[]byte(":2\r\n"), []byte("-LOADING wait\r\n")}))
	// Output:
	// ":42\r\n"
	// "-LOADING wait\r\n"
}
