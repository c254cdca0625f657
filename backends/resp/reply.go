package resp

import (
	"bytes"
	"strconv"
	"strings"
)

// Is reports whether an argument is a word, which is given in upper case, in any case.
// It does not allocate.
func Is(arg []byte, word string) bool {
	return len(arg) == len(word) && strings.EqualFold(string(arg), word)
}

// HasCode reports whether a reply is a simple error with this code word and a text.
func HasCode(reply []byte, code string) bool {
	return len(reply) > len(code)+1 && reply[0] == '-' && string(reply[1:1+len(code)]) == code && reply[1+len(code)] == ' '
}

// Elements splits an array, a set or a map, keys and values in turn, into the complete
// replies that it consists of, which share its memory. It reports false for any other
// reply, and for one that is incomplete.
func Elements(reply []byte) (all [][]byte, ok bool) {
	head, rest, ok := bytes.Cut(reply, []byte("\r\n"))
	if !ok || head[0] != '*' && head[0] != '~' && head[0] != '%' {
		return nil, false
	}
	for len(rest) > 0 {
		var f Scanner
		n, done, _ := f.Scan(rest)
		if !done {
			return nil, false
		}
		all = append(all, rest[:n])
		rest = rest[n:]
	}
	return all, true
}

// AppendElements appends an aggregate of complete replies. A map, '%', needs an even
// number of them.
func AppendElements(b []byte, kind byte, all [][]byte) []byte {
	n := len(all)
	if kind == '%' { // its length counts pairs
		n /= 2
	}
	b = append(strconv.AppendInt(append(b, kind), int64(n), 10), "\r\n"...)
	for _, e := range all {
		b = append(b, e...)
	}
	return b
}

// Bulk is the payload of a bulk string reply, in its memory.
func Bulk(reply []byte) []byte {
	_, rest, _ := bytes.Cut(reply, []byte("\r\n"))
	return bytes.TrimSuffix(rest, []byte("\r\n"))
}

// Int is the value of an integer reply; 0 if it is malformed.
func Int(reply []byte) int64 {
	n, _ := strconv.ParseInt(string(bytes.TrimSpace(reply[1:])), 10, 64)
	return n
}

// Error returns the text of an error reply, code word first, and whether reply
// is one: a simple error, or a blob error. It wants one complete reply that is
// not led by attributes, as answers to a handshake are.
func Error(reply []byte) (text string, isErr bool) {
	if len(reply) < len("-\r\n") || reply[0] != '-' && reply[0] != '!' {
		return "", false
	}
	body := string(reply[1 : len(reply)-2])
	if reply[0] == '!' {
		_, body, _ = strings.Cut(body, "\n")
	}
	return body, true
}

// IntAfter finds the integer that follows the bulk string name in an aggregate
// reply, and where its digits are. It looks at bytes, not at the structure: name must
// be a word that comes before any payload of others.
func IntAfter(reply []byte, name string) (n int64, from, to int, ok bool) {
	head := append(AppendBulkString(nil, name), ':')
	at := bytes.Index(reply, head)
	if at < 0 {
		return 0, 0, 0, false
	}
	from = at + len(head)
	size := bytes.IndexByte(reply[from:], '\r')
	if size < 0 {
		return 0, 0, 0, false
	}
	n, err := strconv.ParseInt(string(reply[from:from+size]), 10, 64)
	return n, from, from + size, err == nil
}
