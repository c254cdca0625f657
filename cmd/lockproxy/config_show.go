package main

import (
	"bytes"
	"errors"
	"net/url"
	"strings"

	"github.com/urfave/cli/v2"
	"go.yaml.in/yaml/v3"
)

func (p program) configCommand() *cli.Command {
	return &cli.Command{
		Name: "config", Usage: "print the settings as serve would have them, and where each comes from",
		Description: `Takes all settings of serve, and prints a configuration file, without passwords. Faults in the settings are printed
after it; the exit code is then 2.`,
		Flags:        append(hidden(flags(new(options).settings()), groupServers), configFlag()),
		OnUsageError: onUsageError,
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return usageError{errors.New("config takes no arguments, only flags")}
			}
			var o options
			all := o.settings()
			raw, bad := load(c, p.env, all)
			text, err := raw.show(all)
			if err != nil {
				return err
			}
			if _, err := p.stdout.Write(text); err != nil {
				return err
			}
			if bad = raw.validate(&o, bad); len(bad) > 0 {
				return bad
			}
			return nil
		},
	}
}

// show is a configuration file with all settings, each with a comment that says where it was given.
func (c config) show(all []setting) ([]byte, error) {
	root := &yaml.Node{Kind: yaml.MappingNode}
	group := ""
	var unset []string // comments for the next setting that is there
	for _, s := range all {
		if s.group != group {
			group = s.group
			unset = append(unset, "", group)
		}
		key, value, comment := c.line(s)
		if value == nil {
			unset = append(unset, key+": "+comment)
			continue
		}
		value.LineComment = comment
		root.Content = append(root.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: key, HeadComment: strings.Join(unset, "\n")}, value)
		unset = nil
	}
	text, err := yaml.Marshal(root)
	return bytes.TrimLeft(text, "\n"), err
}

// line is a setting in a configuration file. It has no value if it is not set, or may not be shown.
func (c config) line(s setting) (key string, value *yaml.Node, comment string) {
	g, isGiven := c[s.name]
	switch {
	case !isGiven && s.value == "":
		return s.name, nil, "not set"
	case !isGiven:
		return s.name, scalar(s.value), "default"
	case g.file:
		return s.name + "-file", scalar(g.from), "not read here"
	case len(g.values) == 0:
		return s.name, nil, "its file cannot be read"
	case s.secret && !s.url:
		return s.name, nil, "not shown, from " + g.from
	}
	comment = g.from
	var shown []*yaml.Node
	for _, text := range g.values {
		if s.holdsPassword(text) {
			server, err := url.Parse(text)
			if err != nil || server.Query().Has("password") {
				return s.name, nil, "not shown, from " + g.from + ": it may hold a password"
			}
			comment = g.from + ", password not shown"
			text = server.Redacted()
		}
		shown = append(shown, scalar(text))
	}
	if !s.list {
		return s.name, shown[0], comment
	}
	shown[0].HeadComment = comment
	return s.name, &yaml.Node{Kind: yaml.SequenceNode, Content: shown}, ""
}

func scalar(text string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Value: text} }
