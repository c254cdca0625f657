package acl

// ExceedsRestricted reports whether a command is larger than the upstream takes from a
// connection that has not authenticated. As an inline command, whose limits are
// others, it could come this far; sent on, it would end the connection for
// everybody on it.
func ExceedsRestricted(args [][]byte) bool {
	for _, a := range args {
		if len(a) > 16<<10 {
			return true
		}
	}
	return len(args) > 10
}
