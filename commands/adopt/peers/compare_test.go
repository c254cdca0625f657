package peers

import (
	"fmt"
	"strings"
	"testing"
)

func TestNeighbours(t *testing.T) {
	tests := map[string]bool{
		"off off": true, "off observe": true, "observe observe": true, "off both": true, "observe both": true,
		"both both": true, "both on": true, "on on": true, "off on": false, "observe on": false,
		"later later": true, "later on": false, "off later": false,
	}
	for modes, want := range tests {
		a, b, _ := strings.Cut(modes, " ")
		if Neighbours(a, b) != want || Neighbours(b, a) != want {
			t.Errorf("%s: %v, %v, want %v", modes, Neighbours(a, b), Neighbours(b, a), want)
		}
	}
}

// patterns reads "glob mode, glob@db mode".
func patterns(text string) (all []Pattern) {
	for _, one := range strings.Split(text, ", ") {
		if one == "" {
			continue
		}
		glob, mode, _ := strings.Cut(one, " ")
		p := Pattern{DB: -1, Mode: mode, As: "usual", NoExpiry: "refuse", Guard: true}
		var db string
		if p.Glob, db, _ = strings.Cut(glob, "@"); db != "" {
			_, _ = fmt.Sscan(db, &p.DB)
		}
		all = append(all, p)
	}
	return all
}

// TestCompare: a clash is "index of ours:index of theirs:key", and @ the database if it is a certain one.
func TestCompare(t *testing.T) {
	tests := []struct{ name, ours, theirs, want string }{
		{"nobody adopts", "", "", ""},
		{"the same", "lock:* on", "lock:* on", ""},
		{"off and none are one", "lock:* off", "", ""},
		{"observe and off are one", "lock:* observe, x off", "lock:* off", ""},
		{"one has no pattern", "lock:* on", "", "0:-1:lock:"},
		{"a neighbour of none", "lock:* both", "", ""},
		{"neighbours", "lock:* both", "lock:* on", ""},
		{"off and on", "lock:* off", "lock:* on", "0:0:lock:"},
		{"of several, that one", "a on, b:* on", "a on, b:* observe", "1:1:b:"},
		{"they have a part", "lock:* on", "lock:a* on", "0:-1:lock:"},
		{"they have more", "lock:a* on", "lock:* on", "-1:0:lock:"},
		{"they overlap", "a*c on", "ab* on", "-1:0:ab 0:-1:ac"},
		{"nothing in common", "a* on", "b* on", "0:-1:a -1:0:b"},
		{"another order of what does not overlap", "a* on, b* on", "b* on, a* on", ""},
		{"another order of what overlaps", "a* on, ab* off", "ab* off, a* on", "0:0:ab"},
		{"the earlier one counts", "ab* off, a* on", "ab* observe, a* on", ""},
		{"a hidden one does not count", "a* on, ab* on", "a* on", ""},
		{"written differently", "a[bc]* on", "ac* on, ab* on", ""},
		{"a class that is larger", "a[b-d] on", "a[bc] on", "0:-1:ad"},
		{"all but a class", "a[^b] on", "a? on", "-1:0:ab"},
		{"all but a class, and it", "a[^b] on, ab on", "a? on", ""},
		{"an escape in a class", `a[\]x]b on`, `a]b on, axb on`, ""},
		{"a - at the end of a class", "[a-]* on", "a* on, -* on", ""},
		{"a range that goes down", "[c-a] on", "a on, b on, c on", ""},
		{"an escape", `a\* on`, "a[*] on", ""},
		{"an escape is no star", `a\* on`, "a* on", "-1:0:a"},
		{"stars in a row", "a**b on", "a*b on", ""},
		{"any byte", "? on", "[^a] on, a on", ""},
		{"the empty key", "* on", "?* on", "0:-1:"},
		{"another database", "a@1 on", "a@2 on", "0:-1:a@1 -1:0:a@2"},
		{"every database and one", "a on", "a@2 on", "0:-1:a"},
		{"every database, and one by a pattern of its own", "a on", "a@2 on, a on", ""},
		{"one database has another mode", "a on", "a@2 off, a on", "0:0:a@2"},
		{"a mode of another version", "a on", "a later", "0:0:a"},
		{"both stand between", "a on, b both, c off", "a both, b off, c both", ""},
	}
	for _, tt := range tests {
		var got []string
		ours, theirs := patterns(tt.ours), patterns(tt.theirs)
		for _, c := range Compare(ours, theirs) {
			text := fmt.Sprintf("%d:%d:%s", c.Ours, c.Theirs, c.Key)
			if c.DB >= 0 {
				text += fmt.Sprint("@", c.DB)
			}
			got = append(got, text)
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
		if a, b := len(Compare(ours, theirs)), len(Compare(theirs, ours)); a != b {
			t.Errorf("%s: %d clashes, and seen from there %d", tt.name, a, b)
		}
	}
}

// TestCompare_Many: long lists are compared in bounded time, and what cannot be compared clashes.
func TestCompare_Many(t *testing.T) {
	var list []string
	for i := range 200 {
		list = append(list, fmt.Sprintf("service:%03d:lock:* on", i))
	}
	ours := patterns(strings.Join(list, ", "))
	theirs := patterns(strings.Join(list[1:], ", "))
	if c := Compare(ours, theirs); len(c) != 1 || c[0].Ours != 0 || c[0].Key != "service:000:lock:" {
		t.Errorf("%+v", c)
	}
	list = nil
	for i := range 20 {
		list = append(list, fmt.Sprintf("*%c%s on", 'a'+i, strings.Repeat("?", 20)))
	}
	ours = patterns(strings.Join(list, ", "))
	if c := Compare(ours, ours[1:]); len(c) == 0 || !c[0].Unknown {
		t.Errorf("%d clashes, want that it is unknown", len(c))
	}
	if c := Compare(ours, ours); len(c) != 0 {
		t.Errorf("the same list: %+v", c)
	}
}

func TestDifferences(t *testing.T) {
	ours := patterns("a on, b on, c off, d on")
	theirs := patterns("a on, b both, c on, e on")
	theirs[0].As, theirs[0].Guard, theirs[1].NoExpiry, theirs[2].As = "strict", false, "lease:10s", "strict"
	got := strings.Join(Differences(ours, theirs), "; ")
	if want := `"a" has as=strict there and as=usual here; "a" has guard=no there and guard=yes here; "b" has no-expiry=lease:10s there and no-expiry=refuse here`; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

func TestParse(t *testing.T) {
	r := Record{Format: Format, Proxy: "here", Sequence: 3, Upstream: []string{"x"}, Patterns: patterns(`l\*[a"b]* on`)}
	if got, err := Parse(r.Text()); err != nil || got.Text() != r.Text() {
		t.Errorf("%+v, %v, want %+v", got, err, r)
	}
	for _, bad := range []string{"", "x", "{}", `{"format":2}`, `{"format":1,"patterns":7}`} {
		if _, err := Parse(bad); err == nil || !strings.HasPrefix(err.Error(), "announces ") {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if _, err := Parse(`{"format":1,"news":1}`); err != nil {
		t.Error("a field of a later version:", err)
	}
}

func TestSameUpstream(t *testing.T) {
	tests := []struct {
		a, b string
		want bool
	}{
		{"x", "x", true}, {"x y", "y z", true}, {"x", "y", false}, {"", "x", true}, {"x", "", true}, {"", "", true},
	}
	for _, tt := range tests {
		if got := sameUpstream(&Record{Upstream: strings.Fields(tt.a)}, &Record{Upstream: strings.Fields(tt.b)}); got != tt.want {
			t.Errorf("%q and %q: %v", tt.a, tt.b, got)
		}
	}
}
