package resp

import (
	"bufio"
	"errors"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
)

func TestRead_OneMessageAtATime(t *testing.T) {
	const first, second = "|1\r\n+a\r\n:1\r\n*2\r\n$5\r\nhello\r\n_\r\n", "%1\r\n+k\r\n=7\r\ntxt:abc\r\n"
	r := bufio.NewReaderSize(iotest.OneByteReader(strings.NewReader(first+second)), 16)
	for _, want := range []string{first, second} {
		if got, err := Read(r, &Limits{Size: 64}); string(got) != want || err != nil {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
	if _, err := Read(bufio.NewReader(strings.NewReader("+"+strings.Repeat("x", 100))), &Limits{Size: 64}); !errors.Is(err, TooLarge) {
		t.Errorf("too large: %v", err)
	}
}

func TestDecode(t *testing.T) {
	got := Decode([]byte("|1\r\n+a\r\n:1\r\n%2\r\n+k\r\n*2\r\n:1\r\n$-1\r\n+l\r\n~0\r\n"))
	want := Tree{Kind: '%', Elems: []Tree{{Kind: '+', Text: "k"}, {Kind: '*', Elems: []Tree{{Kind: ':', Text: "1"}, {Kind: '_'}}}, {Kind: '+', Text: "l"}, {Kind: '~'}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if f := got.Field("l"); f.Kind != '~' {
		t.Errorf("field: %+v", f)
	}
	if f := got.Field("m"); f.Kind != 0 {
		t.Errorf("missing field: %+v", f)
	}
	if f := Decode([]byte("*3\r\n+a\r\n:1\r\n+m\r\n")).Field("m"); f.Kind != 0 {
		t.Errorf("field without a value: %+v", f)
	}
}
