package admin

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/lockproxy/lockproxy/backends/locks"
)

// shownBytes is how much of a text of a client's the page shows without being asked.
const shownBytes = 120

// shown writes bytes of a client as text for people: what can be printed as it is, all
// else, direction marks too, as in a Go string. What is not escaped says what it is, so two
// different texts are shown differently.
func shown(s string) string {
	q := strconv.Quote(s)
	return strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`)
}

// A textView is a text of a client's on the page.
type textView struct {
	Text string `json:"text"`
	Cut  bool   `json:"cut,omitempty"` // there is more of it
}

// short is the beginning of a text, up to the end of a character.
func short(s string) textView {
	if len(s) <= shownBytes {
		return textView{Text: shown(s)}
	}
	end := shownBytes
	for end > shownBytes-utf8.UTFMax && !utf8.RuneStart(s[end]) {
		end--
	}
	return textView{Text: shown(s[:end]), Cut: true}
}

// nameID stands for a name in what the browser asks for, however long or odd the name is.
func nameID(n locks.Key) string {
	sum := sha256.Sum256([]byte(strconv.Itoa(n.DB) + ":" + n.Name))
	return hex.EncodeToString(sum[:12])
}

// millis are whole milliseconds for a script, which counts on from there.
func millis(d time.Duration) int64 { return d.Milliseconds() }
