package commands

// brief is a client's word as the log shows it: not long.
func brief(word string) string {
	const most = 64
	if len(word) > most {
		return word[:most] + "..."
	}
	return word
}
