// Package scripts answers what one master decides: it holds the Lua scripts of the lock
// protocol, each of which is atomic on its master.
//
// Every script is prologue.lua, which decides whether the master may vote, followed by
// its own file. The headers of these files are the reference for keys, arguments and
// replies.
package scripts

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
)

//go:embed *.lua
var files embed.FS

// A Script is one script as masters load it. It is immutable.
type Script struct {
	Name   string
	Source string // the prologue, then the script's own file
	SHA1   string // of Source in lower-case hex, as EVALSHA takes it
}

// The scripts of the protocol.
var (
	Acquire  = load("acquire")
	Settle   = load("settle")
	Note     = load("note")
	Renew    = load("renew")
	Release  = load("release")
	Read     = load("read")
	State    = load("state")
	Register = load("register")
	Restore  = load("restore")
	Change   = load("change")
	Announce = load("announce")
	Open     = load("open")
)

// All returns every script, in no particular order.
func All() []*Script {
	return []*Script{Acquire, Settle, Note, Renew, Release, Read, State, Register, Restore, Change, Announce, Open}
}

// load panics when a file is missing, which only a broken build can cause.
func load(name string) *Script {
	src := mustRead("prologue") + mustRead(name)
	sum := sha1.Sum([]byte(src))
	return &Script{Name: name, Source: src, SHA1: hex.EncodeToString(sum[:])}
}

func mustRead(name string) string {
	b, err := files.ReadFile(name + ".lua")
	if err != nil {
		panic(err)
	}
	return string(b)
}
