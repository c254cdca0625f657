// Package scripts answers what one master decides: it holds the Lua scripts of the lock
// protocol, each of which is atomic on its master.
//
// Every script is prologue.lua, which decides whether the master may vote, followed by
// its own file. Two also have other files as functions: calls those of acquire, release and renew, so that many run in
// one call, and acquireall that of acquire, which runs for each name. The headers of these files are the reference for keys, arguments and replies.
package scripts

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"strings"
)

//go:embed *.lua
var files embed.FS

// A Script is one script as masters load it. It is immutable.
type Script struct {
	Name   string
	Source string // see Compose
	SHA1   string // of Source
}

// The scripts of the protocol.
var (
	Acquire    = load("acquire")
	AcquireAll = load("acquireall")
	Settle     = load("settle")
	Note       = load("note")
	Renew      = load("renew")
	Release    = load("release")
	Calls      = load("calls")
	Read       = load("read")
	State      = load("state")
	Register   = load("register")
	Restore    = load("restore")
	Change     = load("change")
	Announce   = load("announce")
	Open       = load("open")
	Readers    = load("readers")
	DropIntent = load("dropintent")
	Held       = load("held")
	Copy       = load("copy")
)

// All returns every script, in no particular order.
func All() []*Script {
	return []*Script{Acquire, AcquireAll, Settle, Note, Renew, Release, Calls, Read, State, Register, Restore, Change, Announce, Open, Readers, DropIntent, Held, Copy}
}

func load(name string) *Script {
	source := Compose(name, mustRead)
	return &Script{Name: name, Source: source, SHA1: SHA1(source)}
}

// calls are the files that a script has as functions.
var calls = map[string][]string{"calls": {"acquire", "release", "renew"}, "acquireall": {"acquire"}}

// Compose puts the source of a script together from files that file returns, by name without their ending.
func Compose(name string, file func(name string) string) string {
	var source strings.Builder
	if calls[name] != nil {
		source.WriteString("local whole, keys, ARGV, KEYS = ARGV, KEYS, ARGV, KEYS\n")
	}
	source.WriteString(file("prologue"))
	for _, f := range calls[name] {
		source.WriteString("local function " + f + "()\n" + file(f) + "end\n")
	}
	return source.String() + file(name)
}

// mustRead panics when a file is missing, which only a broken build can cause.
func mustRead(name string) string {
	b, err := files.ReadFile(name + ".lua")
	if err != nil {
		panic(err)
	}
	return string(b)
}

// SHA1 is that of a source, in lower-case hex, as EVALSHA takes it.
func SHA1(source string) string {
	sum := sha1.Sum([]byte(source))
	return hex.EncodeToString(sum[:])
}
