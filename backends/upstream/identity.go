package upstream

import (
	"fmt"
	"io"
	"strings"
)

// An Identity is what a connection to the upstream was authenticated and set up as.
// Only clients with equal identities share connections.
type Identity struct {
	User, Secret string // as in AUTH; both empty: not authenticated; User empty: AUTH with the password alone
	DB           int
	Proto        int // 2 or 3
}

func (id Identity) anonymous() bool { return id.User == "" && id.Secret == "" }

// Auth is the AUTH with which a connection becomes the identity's, which has credentials.
func (id Identity) Auth() []string {
	if id.User == "" {
		return []string{"AUTH", id.Secret}
	}
	return []string{"AUTH", id.User, id.Secret}
}

// String is the identity without its secret.
func (id Identity) String() string {
	return fmt.Sprintf("user %q, database %d, RESP%d", id.User, id.DB, id.Proto)
}

// Format writes String, whatever the verb. (fmt cannot call it for an unexported
// field: a struct that has one must not be printed.)
func (id Identity) Format(f fmt.State, _ rune) { io.WriteString(f, id.String()) }

// MarshalText is String, for slog.
func (id Identity) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// A DownError means that the upstream cannot be reached.
type DownError struct{ Err error }

func (e *DownError) Error() string { return "cannot reach the upstream: " + e.Err.Error() }
func (e *DownError) Unwrap() error { return e.Err }

// NoAuth is Redis's error to a client that must authenticate first.
const NoAuth = "-NOAUTH Authentication required.\r\n"

// A RefusedError is the upstream's refusal of a connection for an identity: of a wrong
// password, or of a database out of range.
type RefusedError struct {
	Reply []byte // the error reply, byte for byte, with its \r\n
}

func (e *RefusedError) Error() string { return strings.TrimSpace(string(e.Reply)) }

// TurnedAway reports whether the upstream takes no connection, of whomever.
func (e *RefusedError) TurnedAway() bool { return isTurnedAway(strings.TrimPrefix(e.Error(), "-")) }

// Credentials reports whether it is the user or the password that was refused.
func (e *RefusedError) Credentials() bool {
	text := e.Error()
	return strings.HasPrefix(text, "-WRONGPASS") || strings.HasPrefix(text, "-ERR invalid password")
}
