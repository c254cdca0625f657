package main

import (
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

// load gathers what was said about the settings: flags before environment before
// the file that --config names. The faults are those of the sources themselves,
// such as a key of the file that is no setting; the values are not judged yet.
func load(c *cli.Context, env func(string) (string, bool), all []setting) (config, faults) {
	layers := []config{fromFlags(c, all), fromEnv(env, all)}
	var bad faults
	if path := configPath(c, env); path != "" {
		file, err := fromFile(path, settings())
		layers = append(layers, file)
		bad = append(bad, err...)
	}
	merged, err := merge(layers, all)
	return merged, append(bad, err...)
}

func configPath(c *cli.Context, env func(string) (string, bool)) string {
	if path := c.String("config"); path != "" {
		return path
	}
	path, _ := env("LOCKPROXY_CONFIG")
	return path
}

// spellings are the settings under every name that a source may use: the settings
// themselves and, for secret ones, the -file variant.
func spellings(all []setting) []setting {
	var out []setting
	for _, s := range all {
		out = append(out, s)
		if s.secret {
			out = append(out, setting{
				name:  s.name + "-file",
				usage: "a `file` that holds the value of --" + s.name + fileForm(s),
			})
		}
	}
	return out
}

func fileForm(s setting) string {
	if s.list {
		return ", one on a line"
	}
	return ""
}

func fromFlags(c *cli.Context, all []setting) config {
	out := config{}
	for _, s := range spellings(all) {
		if c.IsSet(s.name) {
			out[s.name] = given{flagValues(c, s), "--" + s.name}
		}
	}
	return out
}

func flagValues(c *cli.Context, s setting) []string {
	switch {
	case s.list:
		return c.StringSlice(s.name)
	case s.toggle:
		return []string{fmt.Sprint(c.Bool(s.name))}
	}
	return []string{c.String(s.name)}
}

// fromEnv reads the environment. A variable that is set to nothing counts as not
// set; a list is separated by spaces or line ends.
func fromEnv(env func(string) (string, bool), all []setting) config {
	out := config{}
	for _, s := range spellings(all) {
		text, _ := env(s.env())
		if text == "" {
			continue
		}
		g := given{[]string{text}, s.env()}
		if s.list {
			g.values = strings.Fields(text)
		}
		out[s.name] = g
	}
	return out
}

// fromFile reads a YAML mapping of setting names to scalars, or to lists of them.
func fromFile(path string, all []setting) (config, faults) {
	f, err := os.Open(path)
	if err != nil {
		return nil, faults{fmt.Errorf("config: %w", err)}
	}
	defer f.Close()
	return fromYAML(path, f, all)
}

// fromYAML is fromFile on an open file; name is what faults call it.
func fromYAML(name string, r io.Reader, all []setting) (config, faults) {
	var doc yaml.Node
	dec := yaml.NewDecoder(r)
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return config{}, nil
	} else if err != nil {
		return nil, faults{fmt.Errorf("config: %s is not YAML: %w", name, err)}
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, faults{fmt.Errorf("config: %s holds more than one document", name)}
	}
	root := doc.Content[0]
	if root.Kind != yaml.MappingNode {
		return nil, faults{fmt.Errorf("config: %s is not a list of settings, each as name: value", name)}
	}
	return fromMapping(name, root, all)
}

func fromMapping(name string, root *yaml.Node, all []setting) (config, faults) {
	known := map[string]setting{}
	for _, s := range spellings(all) {
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
			bad = append(bad, fmt.Errorf("%s: %w", source(key.Value, g.from), err))
			continue
		}
		out[key.Value] = g
	}
	return out, bad
}

func checkKey(known map[string]setting, seen config, key string) error {
	if _, ok := known[key]; !ok {
		return fmt.Errorf("no such setting; there are %s", strings.Join(slices.Sorted(maps.Keys(known)), ", "))
	}
	if earlier, ok := seen[key]; ok {
		return fmt.Errorf("was set before, at %s", earlier.from)
	}
	return nil
}

// scalars is the text of a scalar, or of a list of them where the setting is one.
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

// merge takes each setting from the first layer that speaks of it, under its own
// name or as a file to read it from.
func merge(layers []config, all []setting) (config, faults) {
	var (
		out = config{}
		bad faults
	)
	for _, s := range all {
		for _, l := range layers {
			g, ok, err := l.lookup(s)
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

// lookup finds a setting in one layer. ok says that the layer speaks of it, and is
// true as well when what it says cannot be had.
func (c config) lookup(s setting) (g given, ok bool, err error) {
	g, plain := c[s.name]
	file, fromFile := c[s.name+"-file"]
	switch {
	case plain && fromFile:
		return g, true, fmt.Errorf("%s: given twice, by %s and %s", s.name, g.from, file.from)
	case fromFile:
		g, err = readSecret(s, file)
		return g, true, err
	}
	return g, plain, nil
}

// readSecret reads a -file variant: a value on each line, empty lines and lines
// that begin with # aside.
func readSecret(s setting, file given) (given, error) {
	path := file.values[0]
	if strings.Contains(path, "://") {
		return given{}, fmt.Errorf("%s: names a file, and this looks like the value itself", source(s.name, file.from))
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return given{}, fmt.Errorf("%s: %w", source(s.name, file.from), err)
	}
	g := given{from: path}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			g.values = append(g.values, line)
		}
	}
	if len(g.values) == 0 || len(g.values) > 1 && !s.list {
		return given{}, fmt.Errorf("%s: %s holds %s, want %s", source(s.name, file.from), path, plural(len(g.values), "value"), wanted(s))
	}
	return g, nil
}
