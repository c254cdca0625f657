package main

import (
	"github.com/urfave/cli/v2"
)

// flags are the command line's side of the settings. The environment is not read
// by them, so that no URL from it can turn up in --help.
func flags(all []setting) []cli.Flag {
	var out []cli.Flag
	for _, s := range withFiles(all) {
		out = append(out, flag(s))
	}
	return out
}

func flag(s setting) cli.Flag {
	usage := s.usage + " [$" + s.env() + "]"
	switch {
	case s.list:
		return &cli.StringSliceFlag{Name: s.name, Usage: usage}
	case s.toggle:
		return &cli.BoolFlag{Name: s.name, Usage: usage}
	}
	return &cli.StringFlag{Name: s.name, Usage: usage, Value: s.value}
}

func configFlag() cli.Flag {
	return &cli.StringFlag{Name: "config", Usage: "a YAML `file` of settings, each as name: value [$LOCKPROXY_CONFIG]"}
}
