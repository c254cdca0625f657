package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
	"go.yaml.in/yaml/v3"
)

// A source is one place where settings can be given; ok is false if this one is not given there.
type source func(setting) (g given, ok bool)

// load gathers what is given: flags before the environment before the file that --config
// names. The faults are those of the sources, such as an unknown key in the file; the
// values are not judged yet.
//
// The sources of urfave/cli (EnvVars, FilePath, altsrc) are not used: they do not tell where
// a value was given, take unknown keys and values that are given twice, stop at the first
// fault, and show in --help what the environment holds.
func load(c *cli.Context, env func(string) (string, bool), all []setting) (config, faults) {
	sources := []source{fromFlags(c), fromEnv(env)}
	var bad faults
	path := c.String("config")
	if path == "" {
		path, _ = env("LOCKPROXY_CONFIG")
	}
	if path != "" {
		file, err := fromFile(path, new(options).settings())
		sources = append(sources, file.source)
		bad = append(bad, err...)
	}
	merged, err := merge(sources, all)
	return merged, append(bad, err...)
}

// withFiles is all settings and, behind each secret one, its -file variant.
func withFiles(all []setting) (out []setting) {
	for _, s := range all {
		out = append(out, s)
		if s.secret {
			out = append(out, s.file())
		}
	}
	return out
}

// file is the -file variant of a secret setting.
func (s setting) file() setting {
	usage := "a `file` that holds the value of --" + s.name
	if s.list {
		usage += ", one on a line"
	}
	return setting{name: s.name + "-file", group: s.group, usage: usage}
}

// flags are the command line's side of the settings. The environment is not read
// by them, so that no URL from it can turn up in --help.
func flags(all []setting) []cli.Flag {
	var out []cli.Flag
	for _, s := range withFiles(all) {
		out = append(out, settingFlag(s))
	}
	return out
}

func settingFlag(s setting) cli.Flag {
	usage := s.usage + " [$" + s.env() + "]"
	switch {
	case s.list:
		return &cli.GenericFlag{Name: s.name, Category: s.group, Usage: usage, Value: new(values), DefaultText: s.value}
	case s.toggle:
		return &cli.BoolFlag{Name: s.name, Category: s.group, Usage: usage}
	}
	return &cli.StringFlag{Name: s.name, Category: s.group, Usage: usage, Value: s.value}
}

// hidden is these flags, of which --help shows only those under one heading.
func hidden(all []cli.Flag, but string) []cli.Flag {
	for _, f := range all {
		switch f := f.(type) {
		case *cli.GenericFlag:
			f.Hidden = f.Category != but
		case *cli.BoolFlag:
			f.Hidden = f.Category != but
		case *cli.StringFlag:
			f.Hidden = f.Category != but
		}
	}
	return all
}

// values are those of a flag that may be repeated. Each is taken as it is, with its commas.
type values []string

func (v *values) Set(text string) error {
	*v = append(*v, text)
	return nil
}

func (v *values) String() string { return strings.Join(*v, " ") }

func configFlag() cli.Flag {
	return &cli.StringFlag{Name: "config", Usage: "a YAML `file` of settings, each as name: value [$LOCKPROXY_CONFIG]"}
}

func fromFlags(c *cli.Context) source {
	return func(s setting) (given, bool) {
		g := given{from: "--" + s.name}
		switch {
		case s.list:
			if v, ok := c.Generic(s.name).(*values); ok {
				g.values = *v
			}
		case s.toggle:
			g.values = []string{fmt.Sprint(c.Bool(s.name))}
		default:
			g.values = []string{c.String(s.name)}
		}
		return g, c.IsSet(s.name)
	}
}

// fromEnv reads the environment. A variable that is set to nothing counts as not
// set; a list is separated by spaces or line ends, one whose values have spaces by semicolons or line ends.
func fromEnv(env func(string) (string, bool)) source {
	return func(s setting) (given, bool) {
		text, _ := env(s.env())
		g := given{values: []string{text}, from: s.env()}
		switch {
		case s.spaced:
			g.values = spacedValues(text)
		case s.list:
			g.values = strings.Fields(text)
		}
		return g, text != ""
	}
}

// spacedValues are the values of a list in the environment that may have spaces in them.
func spacedValues(text string) (all []string) {
	for _, value := range strings.FieldsFunc(text, func(r rune) bool { return r == ';' || r == '\n' }) {
		if value = strings.TrimSpace(value); value != "" {
			all = append(all, value)
		}
	}
	return all
}

func (c config) source(s setting) (given, bool) {
	g, ok := c[s.name]
	return g, ok
}

// fromFile reads a YAML mapping of setting names to scalars, or to lists of them.
func fromFile(path string, all []setting) (config, faults) {
	f, err := os.Open(path)
	if err != nil {
		return nil, faults{fmt.Errorf("config: %w", err)}
	}
	defer f.Close()
	var doc yaml.Node
	dec := yaml.NewDecoder(f)
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return config{}, nil
	} else if err != nil {
		return nil, faults{fmt.Errorf("config: %s is not YAML: %w", path, err)}
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, faults{fmt.Errorf("config: %s holds more than one document", path)}
	}
	root := doc.Content[0]
	if root.Kind != yaml.MappingNode {
		return nil, faults{fmt.Errorf("config: %s is not a list of settings, each as name: value", path)}
	}
	return fromMapping(path, root, all)
}

func fromMapping(name string, root *yaml.Node, all []setting) (config, faults) {
	known := map[string]setting{}
	for _, s := range withFiles(all) {
		known[s.name] = s
	}
	var (
		out = config{}
		bad faults
	)
	for i := 0; i < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]
		g := given{from: fmt.Sprintf("%s:%d", name, key.Line)}
		if strings.Contains(key.Value, "://") { // a line without its "name: "
			bad = append(bad, fmt.Errorf("%s: not a setting; write name: value", g.from))
			continue
		}
		err := checkKey(known, out, key.Value)
		if err == nil {
			g.values, err = scalars(known[key.Value], value)
		}
		if err != nil {
			bad = append(bad, fmt.Errorf("%s: %w", g.label(key.Value), err))
			continue
		}
		out[key.Value] = g
	}
	return out, bad
}

func checkKey(known map[string]setting, seen config, key string) error {
	if _, ok := known[key]; !ok {
		names := slices.Sorted(maps.Keys(known))
		return errors.New("no such setting" + cmp.Or(didYouMean("", key, names), "; there are "+strings.Join(names, ", ")))
	}
	if earlier, ok := seen[key]; ok {
		return fmt.Errorf("was set before, at %s", earlier.from)
	}
	return nil
}

// scalars is the text of a scalar or, if the setting is a list, of a list of them.
func scalars(s setting, value *yaml.Node) ([]string, error) {
	nodes := []*yaml.Node{value}
	if value.Kind == yaml.SequenceNode && s.list {
		nodes = value.Content
	}
	var out []string
	for _, n := range nodes {
		if n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
			return nil, errors.New("must be " + wanted(s))
		}
		out = append(out, n.Value)
	}
	return out, nil
}

func wanted(s setting) string {
	if s.list {
		return "a value or a list of values"
	}
	return "one value"
}

// merge takes each setting from the first source that has it, under its own name or as a
// file to read it from.
func merge(sources []source, all []setting) (config, faults) {
	var (
		out = config{}
		bad faults
	)
	for _, s := range all {
		for _, from := range sources {
			g, ok, err := from.lookup(s)
			if err != nil {
				bad = append(bad, err)
			}
			if ok {
				out[s.name] = g
				break
			}
		}
	}
	return out, bad
}

// lookup finds a setting or its -file variant. ok is true as well when the source has it
// and err is why its value cannot be read.
func (from source) lookup(s setting) (g given, ok bool, err error) {
	g, ok = from(s)
	if !s.secret {
		return g, ok, nil
	}
	switch file, inFile := from(s.file()); {
	case ok && inFile:
		return g, true, fmt.Errorf("%s: given twice, by %s and %s", s.name, g.from, file.from)
	case inFile:
		g, err = readSecret(s, file)
		return g, true, err
	}
	return g, ok, nil
}

// readSecret reads a -file variant: a value on each line, empty lines and lines
// that begin with # aside.
func readSecret(s setting, file given) (given, error) {
	path := file.values[0]
	if strings.Contains(path, "://") {
		return given{}, fmt.Errorf("%s: names a file, and this looks like the value itself", file.label(s.name))
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return given{}, fmt.Errorf("%s: %w", file.label(s.name), err)
	}
	g := given{from: path, file: true}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			g.values = append(g.values, line)
		}
	}
	if len(g.values) == 0 || len(g.values) > 1 && !s.list {
		return given{}, fmt.Errorf("%s: %s holds %s, want %s", file.label(s.name), path, plural(len(g.values), "value"), wanted(s))
	}
	return g, nil
}
