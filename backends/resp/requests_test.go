package resp

import (
	"bytes"
	"errors"
	"slices"
	"testing"
)

func TestScanner_RequestIntegers(t *testing.T) {
	tests := []struct {
		in   string
		want int64
		ok   bool
	}{
		{"0", 0, true}, {"7", 7, true}, {"-7", -7, true}, {"10", 10, true},
		{"9223372036854775807", 9223372036854775807, true}, {"9223372036854775808", 0, false},
		{"-9223372036854775808", -9223372036854775808, true}, {"-9223372036854775809", 0, false},
		{"18446744073709551616", 0, false}, {"", 0, false}, {"-", 0, false}, {"-0", 0, false},
		{"--1", 0, false}, {"+1", 0, false}, {"01", 0, false}, {"00", 0, false}, {" 1", 0, false},
		{"1 ", 0, false}, {"1_0", 0, false}, {"1-", 0, false}, {"0x1", 0, false}, {"1\x00", 0, false},
	}
	for _, tt := range tests {
		var s Scanner
		s.number([]byte("*"+tt.in), true)
		if got, ok := s.integer(); ok != tt.ok || ok && got != tt.want {
			t.Errorf("%q is %d, %v", tt.in, got, ok)
		}
	}
}

// requests are what clients may send, with how far a Scanner gets, what it makes of the
// bytes that Redis does not look at, and the fault. How Redis takes them is compared in
// package request.
var requests = []struct {
	name, in, out string
	ends          []int
	fault         Fault
	level         int
}{
	{"array", "*2\r\n$4\r\nECHO\r\n$1\r\na\r\n", "", []int{21}, 0, 0},
	{"pipeline", "*1\r\n$4\r\nPING\r\nPING\r\n*1\r\n$4\r\nPING\r\n", "", []int{14, 20, 34}, 0, 0},
	{"empty", "*0\r\n*-1\r\n\r\n\n", "", []int{4, 9, 11, 12}, 0, 0},
	{"any two bytes end a string", "*2\r\n$1\r\naxx$1\r\nb\x00\x00", "*2\r\n$1\r\na\r\n$1\r\nb\r\n", []int{18}, 0, 0},
	{"any byte behind CR ends a header", "*1\rx$4\rxPING\r\n", "*1\r\n$4\r\nPING\r\n", []int{14}, 0, 0},
	{"part", "*2\r\n$4\r\nECHO\r\n$1", "", nil, 0, 0},
	{"no bulk string", "*1\r\n:1\r\n", "", nil, UnknownType, 1},
	{"no line yet", "*1\r\n:1", "", nil, 0, 0},
	{"count", "*x\r\n", "", nil, BadLength, 0},
	{"length", "*1\r\n$-1\r\n", "", nil, BadLength, 1},
	{"leading zero", "*1\r\n$01\r\n", "", nil, BadLength, 1},
	{"too many", "*9\r\n", "", nil, TooManyValues, 0},
	{"too long", "*1\r\n$1001\r\n", "", nil, LongBulk, 1},
	{"long count", "*1111111111111111111111111111111111111", "", nil, LongLine, 0},
	{"long length", "*1\r\n$1111111111111111111111111111111111111", "", nil, LongLine, 1},
	{"long line", "PINGPINGPINGPINGPINGPINGPINGPINGPING\r\n", "", nil, LongLine, 0},
	{"NUL", "PING\x00\r\nPING\r\n", "", nil, 0, 0},
}

func TestScanner_Requests(t *testing.T) {
	for _, tt := range requests {
		t.Run(tt.name, func(t *testing.T) {
			for size := 1; size <= len(tt.in); size++ {
				s := Scanner{Grammar: Requests, Limits: &Limits{Line: 32, Bulk: 1000, Values: 8}}
				in := []byte(tt.in)
				at, _, err := ends(t, &s, chunked(in, func() int { return size })...)
				if !slices.Equal(at, tt.ends) {
					t.Errorf("chunks of %d end at %v, want %v", size, at, tt.ends)
				}
				if got := new(ScanError); tt.fault == 0 && err != nil || tt.fault != 0 && (!errors.As(err, &got) || got.Fault != tt.fault || got.Level != tt.level) {
					t.Errorf("chunks of %d: %v", size, err)
				}
				if tt.out != "" && string(in) != tt.out {
					t.Errorf("chunks of %d: became %q, want %q", size, in, tt.out)
				}
			}
		})
	}
}

// What is not judged yet is neither announced nor payload.
func TestScanner_RequestInParts(t *testing.T) {
	in := []byte("*2\r\n$4\r\nECHO\r\n$12\r\n0123456789ab\r\n")
	for _, tt := range []struct{ at, unjudged, open, missing int }{
		{0, 0, 0, 0}, {1, 1, 0, 0}, {2, 2, 0, 0}, {3, 3, 0, 0}, {4, 0, 2, 0}, {5, 1, 2, 0}, {7, 3, 2, 0},
		{8, 0, 2, 6}, {10, 0, 2, 4}, {12, 0, 2, 2}, {13, 1, 2, 1}, {14, 0, 1, 0}, {19, 0, 1, 14}, {20, 0, 1, 13}, {31, 0, 1, 2}, {33, 0, 0, 0},
	} {
		s := Scanner{Grammar: Requests}
		_, _, err := s.Scan(bytes.Clone(in[:tt.at]))
		if err != nil || s.Unjudged() != tt.unjudged || s.Open() != tt.open || s.Missing() != tt.missing || s.Starting() != (tt.at == 0 || tt.at == len(in)) {
			t.Errorf("at %d: %d bytes unjudged, %d values open, %d bytes missing, starting %v, %v", tt.at, s.Unjudged(), s.Open(), s.Missing(), s.Starting(), err)
		}
	}
}

func TestArguments(t *testing.T) {
	for _, tt := range []struct {
		in   string
		size int
		want []string // nil: not taken
	}{
		{"*2\r\n$4\r\nECHO\r\n$0\r\n\r\n*1\r\n", 20, []string{"ECHO", ""}},
		{"*1\r\n$10\r\n0123\r\n6789\r\n", 21, []string{"0123\r\n6789"}},
		{"*1\r\n$11\r\n01234567890\r\n", 0, nil}, // beyond the limit
		{"*2\r\n$1\r\na\r\n$1\r\nb\r", 0, nil},
		{"*2\r\n$1\r\na\r\n$1\r\n", 0, nil},
		{"*2\r\n$1\r\na\r\n$1\r", 0, nil},
		{"*2\r\n$1\r\na\r\n", 0, nil},
		{"*1\r\n$1\r\naxx", 0, nil},
		{"*1\r\n$01\r\na\r\n", 0, nil},
		{"*1\r\n$+1\r\na\r\n", 0, nil},
		{"*1\r\n$-1\r\n\r\n", 0, nil},
		{"*1\r\n$1\rxa\r\n", 0, nil},
		{"*1\rx$1\r\na\r\n", 0, nil},
		{"*1\r\n:1\r\na\r\n", 0, nil},
		{"*1\r\n$999999999999999999999\r\na\r\n", 0, nil},
	} {
		n, head := Count([]byte(tt.in), '*')
		args := make([][]byte, n)
		size := Arguments([]byte(tt.in[head:]), args, 10)
		if size > 0 {
			size += head
		}
		var got []string
		for _, arg := range args[:min(size, n)] {
			got = append(got, string(arg))
		}
		if size != tt.size || !slices.Equal(got, tt.want) {
			t.Errorf("%q: %d bytes, %q; want %d, %q", tt.in, size, got, tt.size, tt.want)
		}
	}
}

func TestCount(t *testing.T) {
	for in, want := range map[string][2]int{
		"*0\r\n": {0, 4}, "*1\r\n$1\r\n": {1, 4}, "*9\r\n": {9, 4}, "*10\r\n": {10, 5},
		"*01\r\n": {}, "*1\n\n": {}, "*1\rx": {}, "*1xx": {}, "*1\r": {}, "*12\r": {}, "*": {}, "$1\r\n": {}, "*-1\r\n": {}, "*:1\r\n": {}, "*x\r\n": {}, "*/\r\n": {},
	} {
		if n, length := Count([]byte(in), '*'); n != want[0] || length != want[1] {
			t.Errorf("%q: %d in a header of %d bytes, want %v", in, n, length, want)
		}
	}
}

func TestCloneArguments(t *testing.T) {
	args := [][]byte{[]byte("a"), []byte("b")}
	clone := CloneArguments(args)
	args[0][0], args[1][0] = 'x', 'y'
	if string(clone[0]) != "a" || string(clone[1]) != "b" || string(args[0]) != "x" {
		t.Errorf("%q of %q", clone, args)
	}
}
