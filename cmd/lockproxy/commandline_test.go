package main

import (
	"flag"
	"io"
	"slices"
	"strings"
	"testing"
)

// TestFlagsFirst: flags may stand behind names, "--" ends them, and a value is never taken for a name or a flag.
func TestFlagsFirst(t *testing.T) {
	for _, tt := range []struct {
		args  string
		proxy string
		yes   bool
		names string
		fault string
	}{
		{args: "", names: ""},
		{args: "job", names: "job"},
		{args: "job --proxy p --yes", proxy: "p", yes: true, names: "job"},
		{args: "--yes a --proxy=p b", proxy: "p", yes: true, names: "a b"},
		{args: "-yes=false a -proxy p", proxy: "p", names: "a"},
		{args: "a --proxy --yes", proxy: "--yes", names: "a"},
		{args: "a --proxy -- --yes", proxy: "--", yes: true, names: "a"},
		{args: "a -- --yes --proxy p --", names: "a --yes --proxy p --"},
		{args: "-- a -- --yes", names: "a -- --yes"},
		{args: "- a --yes", yes: true, names: "- a"},
		{args: "a --proxy", fault: "needs an argument: -proxy"},
		{args: "a --nonsense b", fault: "not defined: -nonsense"},
		{args: "a -h", fault: "help requested"},
	} {
		set := flag.NewFlagSet("", flag.ContinueOnError)
		set.SetOutput(io.Discard)
		proxy, yes := set.String("proxy", "", ""), set.Bool("yes", false, "")
		err := set.Parse(flagsFirst(set, strings.Fields(tt.args)))
		if tt.fault != "" {
			if err == nil || !strings.Contains(err.Error(), tt.fault) {
				t.Errorf("%s: %v, want %s", tt.args, err, tt.fault)
			}
			continue
		}
		if err != nil || *proxy != tt.proxy || *yes != tt.yes || !slices.Equal(set.Args(), strings.Fields(tt.names)) {
			t.Errorf("%s: --proxy %q, --yes %v, names %q, %v", tt.args, *proxy, *yes, set.Args(), err)
		}
	}
}
