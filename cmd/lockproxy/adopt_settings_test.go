package main

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

// TestAdopt_Warnings: each choice that is legal but unwise is said once.
func TestAdopt_Warnings(t *testing.T) {
	const up = "redis://127.0.0.1:6379"
	for _, tt := range []struct {
		name, patterns, nodes string
		want                  []string
	}{
		{"none", "lock:*", "a:1 b:1 c:1", nil},
		{"no pattern", "", "a:1", nil},
		{"no literal", "lock:* ; *:lock", "a:1 b:1 c:1", []string{`adopt: "*:lock" begins with no literal text`}},
		{"one node", "lock:*", "a:1", []string{"adopt: with 1 lock node adopted locks"}},
		{"the upstream alone", "lock:*", "", []string{"adopt: with 1 lock node adopted locks"}},
		{"nothing is on", "lock:* mode=observe", "a:1", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := fromFlagsOf("upstream", up)
			if tt.patterns != "" {
				c["adopt"] = given{values: spacedValues(tt.patterns), from: "LOCKPROXY_ADOPT"}
			}
			if tt.nodes != "" {
				c["lock-node"] = given{values: strings.Fields(tt.nodes), from: "--lock-node"}
			}
			o, bad := validated(c, nil)
			if len(bad) > 0 {
				t.Fatal(bad)
			}
			var got []string
			for _, w := range o.warnings {
				if strings.HasPrefix(w, "adopt: ") {
					got = append(got, w)
				}
			}
			if len(got) != len(tt.want) || len(got) > 0 && !strings.HasPrefix(got[0], tt.want[0]) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// TestAdopt_StartLine: the log says which keys are locks, with every word of each pattern.
func TestAdopt_StartLine(t *testing.T) {
	o, bad := validated(fromFlagsOf("upstream", "redis://127.0.0.1:6379", "adopt", `my\x20lock:* ; job:* db=3 mode=off as=strict no-expiry=lease:30s guard=no ; foo as=full flush=release`), nil)
	if len(bad) > 0 {
		t.Fatal(bad)
	}
	var out bytes.Buffer
	logAdoption(slog.New(slog.NewTextHandler(&out, nil)), o.adopt)
	for _, want := range []string{
		`level=INFO msg="pattern of adopted keys" pattern="my lock:*" db=* mode=on as=usual no_expiry=keep flush=keep guard=true`,
		`level=INFO msg="pattern of adopted keys" pattern=job:* db=3 mode=off as=strict no_expiry=lease:30s flush=keep guard=false`,
		`level=INFO msg="pattern of adopted keys" pattern=foo db=* mode=on as=full no_expiry=keep flush=release guard=true`,
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no line %s in\n%s", want, &out)
		}
	}
}
