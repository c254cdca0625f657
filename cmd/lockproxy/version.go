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
		Action: func(*cli.Context) error {
			_, err := fmt.Fprintln(p.stdout, "lockproxy", version())
			return err
		},
	}
}

// version is the module's version and the toolchain of the build.
func version() string {
	return fmt.Sprintf("%s %s %s/%s", moduleVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// moduleVersion is the module's version; (devel) if the build has none.
func moduleVersion() string {
	module := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		module = info.Main.Version
	}
	return cmp.Or(module, "(devel)")
}
