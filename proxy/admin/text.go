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

// shownBytes is the length at which the page truncates texts of clients.
const shownBytes = 120

// shown is bytes of a client as text for people: all that cannot be printed, direction marks
// too, is escaped as in a Go string. Different texts are shown differently.
func shown(s string) string {
	q := strconv.Quote(s)
	return strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`)
}

// A textView is a client's text on the page.
type textView struct {
	Text string `json:"text"`
	Cut  bool   `json:"cut,omitempty"` // truncated
}

// short is a text, truncated at the end of a character.
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

// shownOwner is shown for an owner; that of an adopted lock is shown as the value or field that its client stored.
func shownOwner(owner string) string {
	o, _ := locks.ShownOwner(owner)
	return shown(o)
}

// shortOwner is short of an owner.
func shortOwner(owner string) textView {
	o, _ := locks.ShownOwner(owner)
	return short(o)
}

// adopted returns the kind of an adopted lock with this owner; empty: LOCK has taken it.
func adopted(owner string) string {
	_, kind := locks.ShownOwner(owner)
	return string(kind)
}

// nameID identifies a name in requests of the page, however long or odd the name is.
func nameID(n locks.Key) string {
	sum := sha256.Sum256([]byte(strconv.Itoa(n.DB) + ":" + n.Name))
	return hex.EncodeToString(sum[:12])
}

// millis is d in whole milliseconds, for the page's script.
func millis(d time.Duration) int64 { return d.Milliseconds() }
