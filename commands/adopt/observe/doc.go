// Package observe reports which keys are used as locks, and how, before any is adopted. It looks at commands and
// the beginning of their replies, and changes nothing.
//
//	command ──▶ does it take a lock, or name a key that is followed? ──▶ Tap ──▶ reply ──▶ what it did ──▶ row
//
// With Options.All every command is looked at: SET with NX, SETNX and scripts that package idiom takes for those
// of a lock make their key one that is followed, and only then do other commands of that key count. Keys of a
// pattern are followed from their first command on.
//
// Keys whose shapes are the same share a row. What would become of a call with adoption is said by package idiom,
// which is run over it with the words of the pattern, or the defaults. Values of clients are never kept, only
// hashes of them with a seed of this process.
//
// Memory is bounded: so many keys, rows, scripts and, of a row, values. An Observer is safe for concurrent use. It
// starts no goroutines and does no I/O.
package observe
