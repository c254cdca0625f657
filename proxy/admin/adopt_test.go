package admin

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/commands/adopt/observe"
)

// TestPage_Adopt: operators get what the observer has seen, or that there is none.
func TestPage_Adopt(t *testing.T) {
	t.Parallel()
	o, err := observe.New(observe.Options{All: true, MinTTL: time.Millisecond, MaxTTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	o.Command(&observe.Client{ID: 1}, observe.Plain, 0, 2, [][]byte{[]byte("SETNX"), []byte("lock:1"), []byte("v")}).Reply([]byte(":1\r\n"))
	for _, tt := range []struct {
		o    *observe.Observer
		rows int
	}{{nil, 0}, {o, 1}} {
		d := open(t, Options{Observer: tt.o}, nowhere, nowhere)
		code, body := d.get(t, "/page/adopt")
		var r observe.Report
		if err := json.Unmarshal([]byte(body), &r); err != nil || code != http.StatusOK || r.On != (tt.o != nil) || len(r.Rows) != tt.rows || r.Rows == nil {
			t.Errorf("%d, %v: %s", code, err, body)
		}
	}
	d := open(t, Options{Observer: o, Password: "secret-word"}, nowhere, nowhere)
	if r, _, err := FetchReport(t.Context(), d.Addr().String(), "secret-word"); err != nil || len(r.Rows) != 1 {
		t.Errorf("with the password: %v, %v", r, err)
	}
	if _, _, err := FetchReport(t.Context(), "http://"+d.Addr().String(), ""); err == nil {
		t.Error("it needs no password")
	}
	if code, body := d.get(t, "/page/adopt"); code != http.StatusUnauthorized {
		t.Errorf("without the password: %d: %s", code, body)
	}
}
