package etcd

// match reports whether a name matches a pattern as KEYS takes it: * ? [a-z] [^a-z] and \ before what is meant as it is.
func match(pattern, name string) bool {
	behind, from, starred := "", "", false // where the last * may take one byte more
	for {
		switch {
		case pattern != "" && pattern[0] == '*':
			pattern = pattern[1:]
			behind, from, starred = pattern, name, true
			continue
		case pattern == "" && name == "":
			return true
		case pattern != "" && name != "":
			if is, rest := begins(pattern, name[0]); is {
				pattern, name = rest, name[1:]
				continue
			}
		}
		if !starred || from == "" {
			return false
		}
		from = from[1:]
		pattern, name = behind, from
	}
}

// begins reports whether the first part of a pattern, which is no *, matches c, and what follows that part.
func begins(pattern string, c byte) (is bool, rest string) {
	switch {
	case pattern[0] == '?':
		return true, pattern[1:]
	case pattern[0] == '[':
		return inClass(pattern[1:], c)
	case pattern[0] == '\\' && len(pattern) > 1:
		pattern = pattern[1:]
	}
	return pattern[0] == c, pattern[1:]
}

// inClass reports whether c is in the class that begins class, and what follows its bracket.
func inClass(class string, c byte) (in bool, rest string) {
	not := class != "" && class[0] == '^'
	if not {
		class = class[1:]
	}
	for class != "" && class[0] != ']' {
		if class[0] == '\\' && len(class) > 1 {
			class = class[1:]
		}
		low, high := class[0], class[0]
		if len(class) > 2 && class[1] == '-' {
			high = class[2]
			class = class[2:]
		}
		class = class[1:]
		in = in || min(low, high) <= c && c <= max(low, high)
	}
	if class != "" {
		class = class[1:]
	}
	return in != not, class
}
