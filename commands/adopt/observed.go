package adopt

// Matches reports whether the pattern names a key, whatever its mode.
func (p *Pattern) Matches(db int, key string) bool { return p.matches(db, key) }
