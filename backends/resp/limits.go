package resp

import "fmt"

// Limits bound one message. A zero field is no limit, but Depth's.
type Limits struct {
	Line   int // bytes of a line; of a request's, without its end; at least 64
	Bulk   int // bytes of a bulk string
	Values int // values announced at all levels; arguments of a request
	Depth  int // levels of nesting; 0 means 65536
	Size   int // bytes
}

// A Fault is a way for a message to be wrong. It is an error so that errors.Is finds it in
// a [ScanError].
type Fault uint8

// Faults of form, and then messages beyond a limit.
const (
	UnknownType Fault = iota + 1
	BadLength
	StreamedLength // of RESP3, which Redis does not send
	BadEnd         // no CR LF where it is due
	NestedPush
	LongLine
	LongBulk
	TooManyValues
	TooDeep
	TooLarge
)

// faultTexts are the errors by their faults, with the limit that was exceeded.
var faultTexts = [...]string{
	UnknownType:    "reply of unknown type",
	BadLength:      "reply with a malformed length",
	StreamedLength: "reply of streamed length",
	BadEnd:         "bulk reply not followed by CR LF",
	NestedPush:     "push inside a reply",
	LongLine:       "reply with a line of more than %d bytes",
	LongBulk:       "reply with a string of more than %d bytes",
	TooManyValues:  "reply of more than %d values",
	TooDeep:        "reply nested deeper than %d levels",
	TooLarge:       "reply of more than %d bytes",
}

func (f Fault) Error() string {
	if f >= LongLine {
		return "reply beyond a limit"
	}
	return faultTexts[f]
}

// A ScanError is a Fault of a message, after which a stream cannot be read on.
type ScanError struct {
	Fault Fault
	Level int   // how deep in the message it is; 0 is its own header
	Got   int64 // UnknownType: the type byte. LongBulk, TooManyValues: the number announced
	Limit int   // the field of Limits that was exceeded; else 0
}

func (e *ScanError) Error() string {
	switch {
	case e.Fault == UnknownType:
		return fmt.Sprintf("%v %q", e.Fault, byte(e.Got))
	case e.Fault >= LongLine:
		return fmt.Sprintf(faultTexts[e.Fault], e.Limit)
	}
	return e.Fault.Error()
}

// Unwrap returns the Fault.
func (e *ScanError) Unwrap() error { return e.Fault }

// exceeds reports whether n is beyond limit, of which 0 is none.
func exceeds(n int64, limit int) bool { return limit > 0 && n > int64(limit) }
