// Package lua runs the scripts that clients send with EVAL, as Redis would, in the proxy. It answers
// what a script does without doing it: every redis.call goes to a function of the caller.
//
// It knows the part of Lua 5.1 that lock scripts are written in, and refuses everything else by name,
// with an *Unsupported error, before or while it runs. It never guesses: a script that runs to its end
// does what it does in Redis. The language:
//
//	statements   local, assignment, if, while, repeat, both kinds of for, break, do, return, local function
//	expressions  all operators, functions without "...", tables as lists and records
//	library      tonumber tostring type ipairs pairs unpack error; string.len sub lower upper format;
//	             math.floor ceil abs max min; table.insert getn; redis.call pcall error_reply
//	             status_reply log, and the same of server
//
// The parser is gopher-lua's. The interpreter is our own, since a run must be bounded in steps, depth and
// memory, start in a microsecond and not be able to reach anything else: see MaxSteps and its neighbours.
//
// A Script is safe for concurrent use. The package starts no goroutines.
package lua
