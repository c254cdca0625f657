package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/urfave/cli/v2"
)

func (p program) versionCommand() *cli.Command {
	return &cli.Command{
		Name:         "version",
		Usage:        "say which build this is",
		OnUsageError: onUsageError,
		Action:       func(*cli.Context) error { return p.printVersion() },
	}
}

func (p program) printVersion() error {
	_, err := fmt.Fprintln(p.stdout, "lockproxy", version())
	return err
}

// version is the module's version, the commit and its date if the build knows them, and the toolchain.
func version() string {
	return fmt.Sprintf("%s%s %s %s/%s", moduleVersion(), commit(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// moduleVersion is the module's version; (devel) if the build has none.
func moduleVersion() string {
	module := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		module = info.Main.Version
	}
	return cmp.Or(module, "(devel)")
}

// commit is the commit that was built, with a space in front; empty if the build does not know it.
func commit() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	of := map[string]string{}
	for _, s := range info.Settings {
		of[s.Key] = s.Value
	}
	if of["vcs.revision"] == "" {
		return ""
	}
	changed := ""
	if of["vcs.modified"] == "true" {
		changed = ", changed since"
	}
	return fmt.Sprintf(" (commit %.12s of %s%s)", of["vcs.revision"], of["vcs.time"], changed)
}
