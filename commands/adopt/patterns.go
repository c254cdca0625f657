package adopt

import "github.com/lockproxy/lockproxy/commands/adopt/pattern"

// A Pattern names keys that are locks, a Mode is what is done with them.
type (
	Pattern = pattern.Pattern
	Mode    = pattern.Mode
)

// What they are made of, see package pattern.
const (
	Off         = pattern.Off
	Observe     = pattern.Observe
	Both        = pattern.Both
	On          = pattern.On
	AnyDatabase = pattern.AnyDatabase
)

// ParsePattern parses PATTERN [name=value …]. The error names every fault.
func ParsePattern(text string) (*Pattern, error) { return pattern.Parse(text) }
