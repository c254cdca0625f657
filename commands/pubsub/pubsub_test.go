package pubsub

import "testing"

func TestMayMatchKeyspace(t *testing.T) {
	for pattern, want := range map[string]bool{
		"*": true, "?": true, "__key*": true, "__keyspace@0__:*": false, "_*": true, "[_a]*": true, `\__key*`: true,
		"news*": false, "__keys": false, "__kez*": false, "": false, "x": false,
	} {
		if got := mayMatchKeyspace(pattern); got != want {
			t.Errorf("%q: %v", pattern, got)
		}
	}
}
