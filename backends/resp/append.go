package resp

import "strconv"

// AppendSimple appends a simple string. CR and LF in it become spaces.
func AppendSimple(b []byte, text string) []byte { return appendLine(b, '+', text) }

// AppendError appends an error reply; text begins with its code word ("ERR …").
// CR and LF in it become spaces, as Redis does it.
func AppendError(b []byte, text string) []byte { return appendLine(b, '-', text) }

func appendLine(b []byte, kind byte, text string) []byte {
	b = append(b, kind)
	at := len(b)
	b = append(b, text...)
	for i := at; i < len(b); i++ {
		if b[i] == '\r' || b[i] == '\n' {
			b[i] = ' '
		}
	}
	return append(b, '\r', '\n')
}

// AppendInt appends an integer reply.
func AppendInt(b []byte, n int64) []byte { return appendNumber(b, ':', n) }

func appendNumber(b []byte, kind byte, n int64) []byte {
	b = strconv.AppendInt(append(b, kind), n, 10)
	return append(b, '\r', '\n')
}

// AppendBulk appends a bulk string of any bytes; nil is the empty one.
func AppendBulk(b, value []byte) []byte { return appendBulk(b, value) }

// AppendBulkString is [AppendBulk] for a string.
func AppendBulkString(b []byte, value string) []byte { return appendBulk(b, value) }

func appendBulk[T string | []byte](b []byte, value T) []byte {
	b = appendNumber(b, '$', int64(len(value)))
	b = append(b, value...)
	return append(b, '\r', '\n')
}

// AppendArray appends the head of an array; the caller appends its n elements.
func AppendArray(b []byte, n int) []byte { return appendNumber(b, '*', int64(n)) }

// AppendMap appends the head of a map, in protocol 2 that of a flat array; the
// caller appends its pairs, key and value in turn.
func AppendMap(b []byte, pairs, proto int) []byte {
	if proto >= 3 {
		return appendNumber(b, '%', int64(pairs))
	}
	return AppendArray(b, 2*pairs)
}

// AppendNull appends the null of protocol 3, or in protocol 2 the null array.
func AppendNull(b []byte, proto int) []byte {
	if proto >= 3 {
		return append(b, "_\r\n"...)
	}
	return append(b, "*-1\r\n"...)
}

// AppendNullBulk appends the null of protocol 3, or in protocol 2 the null bulk string, which stands in place of a text or an integer.
func AppendNullBulk(b []byte, proto int) []byte {
	if proto >= 3 {
		return AppendNull(b, proto)
	}
	return append(b, "$-1\r\n"...)
}

// AppendCommand appends a command as clients send it: an array of bulk strings.
func AppendCommand[T string | []byte](b []byte, args ...T) []byte {
	b = AppendArray(b, len(args))
	for _, arg := range args {
		b = appendBulk(b, arg)
	}
	return b
}

// AppendTextLike appends a text in the form of like, a bulk or verbatim string.
func AppendTextLike(b, like, text []byte) []byte {
	if like[0] != '=' {
		return AppendBulk(b, text)
	}
	b = strconv.AppendInt(append(b, '='), int64(len(text)+len("txt:")), 10)
	b = append(b, "\r\ntxt:"...)
	b = append(b, text...)
	return append(b, '\r', '\n')
}
