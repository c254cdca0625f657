package admin

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"html"
	"io/fs"
	"net/http"
	"path"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/metrics"
)

// The files have nothing that the policy forbids or that could turn a name into HTML.
func TestPage_Files(t *testing.T) {
	t.Parallel()
	d := open(t, Options{}, nowhere, nowhere)
	for path, want := range map[string]string{
		"/": "text/html; charset=utf-8", "/app.js": "text/javascript; charset=utf-8", "/dom.js": "text/javascript; charset=utf-8", "/style.css": "text/css; charset=utf-8", "/icon.svg": "image/svg+xml",
	} {
		resp, body := d.ask(t, http.MethodGet, path)
		if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != want || len(body) < 100 {
			t.Errorf("%s: %d, %q, %d bytes", path, resp.StatusCode, resp.Header.Get("Content-Type"), len(body))
		}
	}
	if _, body := d.ask(t, http.MethodGet, "/"); !strings.Contains(body, "</h1>") || !strings.Contains(body, "✗ upstream: ") || !strings.Contains(body, `data-first="{&#34;history&#34;:{`) || strings.Contains(body, "{{") {
		t.Errorf("the page: %.3000s", body)
	}
	markup := regexp.MustCompile(`(?i)<script>|<script [^>]*>[^<]|<style|\s(style|on[a-z]+)=|src="[^"]*:|href="[^"]*:`)
	script := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|https?://|\.style\b|cssText`)
	css := regexp.MustCompile(`url\(|@import|https?:`)
	files, err := fs.ReadDir(pageFS, "page")
	if err != nil || len(files) < 8 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		name := file.Name()
		bad := map[string]*regexp.Regexp{".html": markup, ".js": script, ".css": css}[path.Ext(name)]
		if bad == nil {
			continue
		}
		text, err := fs.ReadFile(pageFS, "page/"+name)
		if err != nil {
			t.Fatal(err)
		}
		if found := bad.FindAllString(string(text), -1); found != nil {
			t.Errorf("%s has %q", name, found)
		}
	}
	if code, _ := d.get(t, "/page/"); code != http.StatusNotFound {
		t.Errorf("a listing of the files: %d", code)
	}
}

// What the page has before any event: locks too, whose details can be asked for, unless too few nodes answer.
func TestPage_First(t *testing.T) {
	t.Parallel()
	d, _, nodes := openReal(t, Options{}, 3)
	g := grab(t, d, locks.LockRequest{Key: locks.Key{Name: "job \"1\""}, Owner: "alice"})
	first := func() (v struct {
		State   stateView
		Locks   *locksView
		History historyView
	}) {
		_, body := d.ask(t, http.MethodGet, "/")
		_, rest, _ := strings.Cut(body, `data-first="`)
		data, _, _ := strings.Cut(rest, `"`)
		if err := json.Unmarshal([]byte(html.UnescapeString(data)), &v); err != nil {
			t.Fatal(err)
		}
		if says := html.EscapeString(v.State.Summary.Says); says == "" || !strings.Contains(body, `class="status `+v.State.Summary.Kind+`" role="status" aria-live="polite">`+says+"</p>") {
			t.Errorf("%q does not stand in the page: %.3000s", says, body)
		}
		return v
	}
	v := first()
	if v.Locks == nil || len(v.Locks.Rows) != 1 || v.Locks.Rows[0].Owner.Text != "alice" || !v.Locks.Complete || v.Locks.Names != 1 || len(v.State.Nodes) != 3 || v.History.Every == 0 {
		t.Fatalf("first %+v", v)
	}
	if code, body := d.get(t, "/page/lock?id="+v.Locks.Rows[0].ID); code != http.StatusOK || !strings.Contains(body, fmt.Sprint(g.Fence)) {
		t.Errorf("details: %d %s", code, body)
	}
	look := &d.feed.first
	for _, n := range nodes {
		n.Kill()
	}
	look.next = time.Now().Add(time.Hour)
	if again := first(); again.Locks == nil || len(again.Locks.Rows) != 1 || again.Locks.Age < v.Locks.Age {
		t.Errorf("before it is time to look again: %+v", again)
	}
	look.next = time.Time{}
	if after := first(); after.Locks != nil {
		t.Errorf("no node answers: %+v", after)
	}
}

// A stream is the events of one viewer.
type stream struct {
	t     *testing.T
	body  *bufio.Reader
	close func()
}

func (d *testServer) look(t *testing.T, filter string, header ...string) *stream {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, d.url+"/page/events?filter="+filter, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := d.http.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream; charset=utf-8" {
		t.Fatalf("%d %v", resp.StatusCode, resp.Header)
	}
	s := &stream{t: t, body: bufio.NewReader(resp.Body), close: func() { cancel(); resp.Body.Close() }}
	t.Cleanup(s.close)
	return s
}

// next is the data of the next event of a kind.
func (s *stream) next(kind string) string {
	s.t.Helper()
	of := ""
	for {
		line, err := s.body.ReadString('\n')
		if err != nil {
			s.t.Fatal(err)
		}
		switch field, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": "); {
		case field == "event":
			of = value
		case field == "data" && of == kind:
			return value
		}
	}
}

func nextAs[T any](s *stream, kind string) (v T) {
	s.t.Helper()
	if err := json.Unmarshal([]byte(s.next(kind)), &v); err != nil {
		s.t.Fatal(err)
	}
	return v
}

// until is the first event of a kind that is ok.
func until[T any](s *stream, kind, what string, ok func(T) bool) (v T) {
	s.t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); {
		if v = nextAs[T](s, kind); ok(v) {
			return v
		}
	}
	s.t.Fatalf("never told: %s; last %+v", what, v)
	return v
}

func grab(t *testing.T, d *testServer, r locks.LockRequest) locks.Grant {
	t.Helper()
	r.TTL = 50 * time.Second
	a, err := d.locks.Lock(t.Context(), r)
	if err != nil || !a.Granted {
		t.Fatalf("LOCK %.100q: %+v, %v", r.Name, a, err)
	}
	return a.Grant
}

func free(t *testing.T, d *testServer, g locks.Grant) {
	t.Helper()
	if _, err := d.locks.Unlock(t.Context(), locks.UnlockRequest{Key: g.Key, Owner: g.Owner, Fence: g.Fence}); err != nil {
		t.Fatal(err)
	}
}

func TestFeed_Events(t *testing.T) {
	t.Parallel()
	d, _, _ := openReal(t, Options{Force: true, Version: "v9"}, 5)
	d.run(t)
	g := grab(t, d, locks.LockRequest{Key: locks.Key{DB: 2, Name: "job\n<b>"}, Owner: "alice", Info: "why", Client: "there"})
	s := d.look(t, "")
	st := until(s, "state", "the first node's vote", func(v stateView) bool { return len(v.Nodes) > 0 && v.Nodes[0].Yes > 0 })
	if !st.Force || st.Proxy.Version != "v9" || st.Proxy.Clients != 7 || st.Needed != 3 || len(st.Nodes) != 5 || !st.Nodes[4].Votes || st.Viewers != 1 || len(st.Health) != 3 {
		t.Errorf("state %+v", st)
	}
	v := nextAs[locksView](s, "locks")
	if len(v.Rows) != 1 || v.More != 0 || !v.Complete || v.Error != "" || v.Every < 2000 {
		t.Fatalf("locks %+v", v)
	}
	l := v.Rows[0]
	checkRow(t, l, g)

	ctx, cancel := context.WithCancel(t.Context())
	waits := make(chan struct{})
	go func() {
		defer close(waits)
		_, _ = d.locks.Lock(ctx, locks.LockRequest{Key: g.Key, Owner: "bob", TTL: time.Second, Wait: time.Minute, Client: "here"})
	}()
	defer func() { cancel(); <-waits }()
	st = until(s, "state", "bob waits", func(v stateView) bool { return len(v.Queues) == 1 && v.Queues[0].Holder.Text != "" })
	checkQueue(t, st, l.ID)
	checkDetail(t, d, l.ID)
	cancel()
	<-waits
	free(t, d, g)
	until(s, "locks", "nobody holds it", func(v locksView) bool { return len(v.Rows) == 0 })
	s.close()
	checkRest(t, d, l.ID)
}

// checkRow checks the row of g, a lock of alice that was just granted.
func checkRow(t *testing.T, l lockView, g locks.Grant) {
	t.Helper()
	if l.Remaining < 20_000 || l.Remaining > 50_000 || l.Held < 0 || l.Held > 30_000 || l.Waited > 30_000 {
		t.Errorf("times of %+v", l)
	}
	l.Remaining, l.Held, l.Waited = 0, 0, 0
	if want := (lockView{
		ID: nameID(locks.Key{DB: 2, Name: "job\n<b>"}), DB: 2, Name: textView{Text: `job\n<b>`}, Owner: textView{Text: "alice"}, Info: textView{Text: "why"},
		Fence: fmt.Sprint(g.Fence), Holds: 1, Here: true, Votes: 5, Of: 5,
	}); l != want {
		t.Errorf("got %+v, want %+v", l, want)
	}
}

// checkQueue checks the state while bob waits for a lock of alice.
func checkQueue(t *testing.T, st stateView, id string) {
	t.Helper()
	if q := st.Queues[0]; q.Waiters != 1 || q.Next.Text != "bob" || q.Holder.Text != "alice" || q.ID != id || st.Lines != 1 {
		t.Errorf("queues %+v", st.Queues)
	}
	if len(st.Asked) != 1 || st.Asked[0].Name.Text != `job\n<b>` || st.Asked[0].Grants <= 0 {
		t.Errorf("hot %+v", st.Asked)
	}
}

// checkDetail checks the detail of a lock of alice for which bob waits.
func checkDetail(t *testing.T, d *testServer, id string) {
	t.Helper()
	code, body := d.get(t, "/page/lock?id="+id)
	var detail detailView
	if err := json.Unmarshal([]byte(body), &detail); err != nil || code != http.StatusOK {
		t.Fatal(code, body)
	}
	if detail.Owner != "alice" || detail.Waiting != 1 || detail.Waiters[0].Client.Text != "here" || len(detail.Nodes) != 5 || detail.Nodes[0].Says != "held" || detail.Needed != 3 {
		t.Errorf("detail %+v", detail)
	}
	if l := detail.Timeline; len(l) != 1 || l[0].Kind != "granted" || l[0].Owner.Text != "alice" || l[0].Fence != detail.Fence || detail.Client != "there" {
		t.Errorf("timeline %+v, held at %q", l, detail.Client)
	}
	if why := strings.Join(detail.Why, "\n"); !strings.Contains(why, "is held by alice, fence "+detail.Fence) || !strings.Contains(why, "1. bob at here") {
		t.Errorf("why: %s", why)
	}
	if code, body := d.get(t, "/page/lock?id="+strings.Repeat("0", 24)); code != http.StatusNotFound || !strings.Contains(body, "not on the page") {
		t.Errorf("of no lock: %d %s", code, body)
	}
}

// checkRest checks that without viewers nothing is asked but what a Service asks by itself, and
// that the lock id is forgotten.
func checkRest(t *testing.T, d *testServer, id string) {
	t.Helper()
	eventually(t, "nobody looks", func() bool { d.feed.mu.Lock(); defer d.feed.mu.Unlock(); return len(d.feed.viewers) == 0 })
	eventually(t, "no lists for longer than there is between two", func() bool {
		listed := asked(d, "list")
		time.Sleep(locksInterval + locksInterval/4)
		return asked(d, "list") == listed
	})
	if code, _ := d.get(t, "/page/lock?id="+id); code != http.StatusNotFound {
		t.Errorf("names are remembered while nobody looks: %d", code)
	}
}

// asked is the number of rounds with a question.
func asked(d *testServer, question string) int64 {
	return metrics.Registry{d.locks}.Sample("lockproxy_lock_round_seconds", "question", question).Durations.Count()
}

func TestFeed_OneReadForAllViewers(t *testing.T) {
	t.Parallel()
	d, _, _ := openReal(t, Options{}, 3)
	grab(t, d, locks.LockRequest{Key: locks.Key{Name: "import:1"}, Owner: "alice"})
	grab(t, d, locks.LockRequest{Key: locks.Key{Name: "report"}, Owner: "alice"})
	var all []*stream
	for range maxViewers - 1 {
		all = append(all, d.look(t, ""))
	}
	all = append(all, d.look(t, "IMP"))
	told, same := map[string]int{}, 0
	for tries := 0; same < maxViewers-1 && tries < 10; tries++ { // some came later than others
		for _, s := range all[:maxViewers-1] {
			text := s.next("locks")
			told[text]++
			same = max(same, told[text])
		}
	}
	if same != maxViewers-1 {
		t.Errorf("at most %d of %d were told the same", same, maxViewers-1)
	}
	v := nextAs[locksView](all[maxViewers-1], "locks")
	if len(v.Rows) != 1 || v.Rows[0].Name.Text != "import:1" || v.Filter != "imp" {
		t.Errorf("filtered: %+v", v)
	}
	resp, body := d.ask(t, http.MethodGet, "/page/events")
	if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" || !strings.Contains(body, "too many pages") {
		t.Errorf("one too many: %d %s", resp.StatusCode, body)
	}
	all[3].close()
	eventually(t, "there is room again", func() bool { d.feed.mu.Lock(); defer d.feed.mu.Unlock(); return len(d.feed.viewers) < maxViewers })
	d.look(t, "")
	if code, _ := d.get(t, "/page/events?filter="+strings.Repeat("x", maxFilter+1)); code != http.StatusBadRequest {
		t.Errorf("a long filter: %d", code)
	}
	if err := d.end(); err != nil { // while all look
		t.Error(err)
	}
}

func TestFeed_NoQuorum(t *testing.T) {
	t.Parallel()
	d, _, nodes := openReal(t, Options{}, 3)
	grab(t, d, locks.LockRequest{Key: locks.Key{Name: "job"}, Owner: "alice"})
	s := d.look(t, "")
	v := nextAs[locksView](s, "locks")
	nodes[0].Kill()
	nodes[1].Kill()
	until(s, "locks", "why nothing is told", func(v locksView) bool { return v.Error != "" && v.Rows == nil })
	code, body := d.get(t, "/page/lock?id="+v.Rows[0].ID)
	var detail detailView
	if err := json.Unmarshal([]byte(body), &detail); err != nil || code != http.StatusOK || detail.Held || detail.Error == "" || len(detail.Nodes) != 3 {
		t.Errorf("detail %d %s", code, body)
	}
}

// It holds up no other viewer.
func TestFeed_SlowViewerIsDropped(t *testing.T) {
	t.Parallel()
	d := open(t, Options{}, nowhere, nowhere)
	l := newFeed(d.Server) // nobody runs it
	slow, err := l.join("")
	if err != nil {
		t.Fatal(err)
	}
	quick, err := l.join("")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 * maxPendingEvents {
		l.broadcast("state", i, func(*viewer) bool { return true })
		if event := string(<-quick.events); event != fmt.Sprintf("event: state\ndata: %d\n\n", i) {
			t.Errorf("told %q", event)
		}
	}
	for range maxPendingEvents {
		if _, ok := <-slow.events; !ok {
			t.Error("dropped early")
		}
	}
	if _, ok := <-slow.events; ok {
		t.Error("not dropped")
	}
	l.leave(slow) // its handler does, too
	l.leave(quick)
	select {
	case <-l.hasViewer:
		t.Error("somebody is said to look")
	default:
	}
}

func TestFeed_ManyLocks(t *testing.T) {
	t.Parallel()
	var all []locks.Key
	for i := range 3000 {
		all = append(all, locks.Key{Name: fmt.Sprintf("Job:%04d", i)})
	}
	waited := locks.Key{Name: "Job:2999"}
	some, more := selectNames(all, []locks.Key{waited}, []string{"", "job:1", ":0007", "none"})
	for filter, want := range map[string][2]int{"": {maxRows, 2500}, "job:1": {maxRows, 500}, ":0007": {1, 0}, "none": {0, 0}} {
		if got := [2]int{len(some[filter]), more[filter]}; got != want {
			t.Errorf("%q: %v, want %v", filter, got, want)
		}
	}
	if n := len(union(some)); n != 2*maxRows {
		t.Errorf("%d names to read, want %d", n, 2*maxRows)
	}
	if first, last := some[""][0], some[""][maxRows-1]; first != all[0] || last != waited || some["job:1"][0] != all[1000] {
		t.Errorf("from %v to %v, want the first ones in order and the one that is waited for", first, last)
	}
}

func TestShown_Escapes(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`plain "name" it's`:             `plain "name" it's`,
		"<script>":                      "<script>",
		"a\x00b\xff\r\n\t":              `a\x00b\xff\r\n\t`,
		`back\slash`:                    `back\\slash`,
		"Zürich 東京 שלום":                "Zürich 東京 שלום",
		"\u202e\u2066\u200b\ufeff":      `\u202e\u2066\u200b\ufeff`,
		"\u00a0\u2028\U000e0041":        `\u00a0\u2028\U000e0041`,
		"\\\"":                          `\\"`,
		strings.Repeat("x", shownBytes): strings.Repeat("x", shownBytes),
	} {
		if got := short(in); got != (textView{Text: want}) {
			t.Errorf("%q is shown as %q, want %q", in, got.Text, want)
		}
	}
	for _, in := range []string{strings.Repeat("x", shownBytes+1), strings.Repeat("東", 64<<10/3), strings.Repeat("\xff", 64<<10)} {
		got := short(in)
		if !got.Cut || len(got.Text) > 4*shownBytes || strings.HasPrefix(in, "東") && strings.Trim(got.Text, "東") != "" {
			t.Errorf("%.10q is shown as %q", in, got.Text)
		}
	}
}

// TestPage_OpenedWhileTheLastViewerLeaves: a page knows its locks before its events have begun, also when all other pages are closed then.
func TestPage_OpenedWhileTheLastViewerLeaves(t *testing.T) {
	t.Parallel()
	d, _, _ := openReal(t, Options{}, 3)
	grab(t, d, locks.LockRequest{Key: locks.Key{Name: "job"}, Owner: "alice"})
	other := d.look(t, "")
	var first *locksView
	eventually(t, "the page comes with the lock", func() bool {
		first = d.feed.first.locks(t.Context())
		return first != nil && len(first.Rows) == 1
	})
	other.close()
	eventually(t, "nobody looks", func() bool { return !d.feed.hasViewers() })
	if code, body := d.get(t, "/page/lock?id="+first.Rows[0].ID); code != http.StatusOK {
		t.Errorf("%d %s", code, body)
	}
}
