package integration

import (
	"bufio"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// tourVariable names a file that gets the tour as an animated SVG: docs/tour.svg, by `make tour`.
const tourVariable = "LOCKPROXY_TOUR"

// TestTour is the picture of the README: three redis-cli want one lock, its holder is killed, and those who wait get it in
// their turn, long before the lease is over, while the page says who has it.
func TestTour(t *testing.T) {
	t.Parallel()
	redisCLI, err := exec.LookPath("redis-cli")
	if err != nil {
		t.Skip("there is no redis-cli")
	}
	admin, err := redistest.FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	p := redistest.StartProxy(t, redistest.Start(t), redistest.StartNodes(t, 5), "--admin", admin)
	pause := 50 * time.Millisecond
	if os.Getenv(tourVariable) != "" {
		pause = 2 * time.Second // to be read
	}
	tour := &tour{began: time.Now()}
	page := tour.watchPage(t, admin)
	var clients []*tourist
	for _, name := range []string{"a", "b", "c"} {
		clients = append(clients, tour.join(t, redisCLI, p.Addr(), name))
	}
	a, b, c := clients[0], clients[1], clients[2]

	a.ask(t, "LOCK job 30s OWNER a SESSION")
	a.await(t, `"a"`)
	page.await(t, "held by a", func(s lockView) bool { return s.Owner == "a" })
	time.Sleep(pause)
	b.ask(t, "LOCK job 30s OWNER b SESSION WAIT 60s")
	page.await(t, "b waits", func(s lockView) bool { return s.Waiting == 1 && s.Next == "b" })
	time.Sleep(pause)
	c.ask(t, "LOCK job 30s OWNER c SESSION WAIT 60s")
	page.await(t, "b and c wait", func(s lockView) bool { return s.Waiting == 2 && s.Next == "b" })
	time.Sleep(pause)

	killed := a.kill(t)
	granted := b.await(t, `"b"`)
	tour.note(b.name, fmt.Sprintf("%.1f ms after the kill", float64(granted.Sub(killed).Microseconds())/1000))
	page.await(t, "held by b", func(s lockView) bool { return s.Owner == "b" && s.Waiting == 1 && s.Next == "c" })
	time.Sleep(pause)
	b.ask(t, "UNLOCK job b")
	c.await(t, `"c"`)
	page.await(t, "held by c", func(s lockView) bool { return s.Owner == "c" && s.Waiting == 0 })
	time.Sleep(pause)

	if a, c := a.fence(t), c.fence(t); a >= b.fence(t) || b.fence(t) >= c {
		t.Errorf("fences %s, %s, %s do not grow", a, b.fence(t), c)
	}
	if path := os.Getenv(tourVariable); path != "" {
		if err := os.WriteFile(path, []byte(tour.svg()), 0o644); err != nil {
			t.Error(err)
		}
	}
}

// A tour records what is seen, and when. Its methods are safe for concurrent use.
type tour struct {
	began time.Time

	mu    sync.Mutex
	lines []tourLine
	pages []tourPage
}

// A tourLine is a line of a client's terminal, or a note beside its last one.
type tourLine struct {
	client, text string
	at           time.Duration
	note         bool
}

type tourPage struct {
	state lockView
	at    time.Duration
}

func (r *tour) add(l tourLine) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l.at = time.Since(r.began)
	r.lines = append(r.lines, l)
}

func (r *tour) note(client, text string) { r.add(tourLine{client: client, text: text, note: true}) }

// A tourist is a redis-cli.
type tourist struct {
	name  string
	tour  *tour
	cmd   *exec.Cmd
	stdin io.Writer
	said  chan string
	all   []string // of said
}

// join starts a redis-cli, which ends with the test.
func (r *tour) join(t *testing.T, redisCLI, addr, name string) *tourist {
	t.Helper()
	host, port, _ := strings.Cut(addr, ":")
	c := &tourist{name: name, tour: r, cmd: exec.Command(redisCLI, "--no-raw", "-h", host, "-p", port), said: make(chan string, 64)}
	stdin, err := c.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c.stdin = stdin
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for out := bufio.NewScanner(stdout); out.Scan(); {
			r.add(tourLine{client: name, text: out.Text()})
			c.said <- out.Text()
		}
		_ = c.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = c.cmd.Process.Kill()
		<-ended
	})
	return c
}

func (c *tourist) ask(t *testing.T, command string) {
	t.Helper()
	c.tour.add(tourLine{client: c.name, text: "> " + command})
	if _, err := fmt.Fprintln(c.stdin, command); err != nil {
		t.Fatal(err)
	}
}

// await waits until a line of what the client prints has the text, and returns when that was.
func (c *tourist) await(t *testing.T, text string) time.Time {
	t.Helper()
	late := time.After(patience(0))
	for {
		select {
		case line := <-c.said:
			if c.all = append(c.all, line); strings.Contains(line, text) {
				return time.Now()
			}
		case <-late:
			t.Fatalf("client %s does not print %s, but %q", c.name, text, c.all)
		}
	}
}

// kill ends the client as kill -9 does, and returns when.
func (c *tourist) kill(t *testing.T) time.Time {
	t.Helper()
	now := time.Now()
	if err := c.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	c.tour.add(tourLine{client: c.name, text: "Killed"})
	return now
}

// fence is that of the client's first grant.
func (c *tourist) fence(t *testing.T) string {
	t.Helper()
	for _, line := range c.all {
		if fence, found := strings.CutPrefix(line, "1) (integer) "); found {
			return fence
		}
	}
	t.Fatalf("client %s was told no fence: %q", c.name, c.all)
	return ""
}

// A lockView is what the page shows of the lock.
type lockView struct {
	Owner, Next string // empty: nobody
	Waiting     int
	Votes, Of   int
}

// A pageWatch follows the events of the page.
type pageWatch struct{ states chan lockView }

// watchPage follows the page until the test ends.
func (r *tour) watchPage(t *testing.T, addr string) *pageWatch {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+"/page/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	w := &pageWatch{make(chan lockView, 1024)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer resp.Body.Close()
		var s lockView
		event := ""
		for in := bufio.NewReader(resp.Body); ; {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			if name, found := strings.CutPrefix(line, "event: "); found {
				event = strings.TrimSpace(name)
			}
			if data, found := strings.CutPrefix(line, "data: "); found && s.update(event, data) {
				r.mu.Lock()
				r.pages = append(r.pages, tourPage{s, time.Since(r.began)})
				r.mu.Unlock()
				w.states <- s
			}
		}
	}()
	t.Cleanup(func() { <-ended })
	return w
}

// update takes what an event says of the lock, and reports whether it has changed the state.
func (s *lockView) update(event, data string) bool {
	type text struct {
		Text string `json:"text"`
	}
	var v struct {
		Queues []struct {
			Waiters int  `json:"waiters"`
			Next    text `json:"next"`
		} `json:"queues"`
		Rows []struct {
			Owner text `json:"owner"`
			Votes int  `json:"votes"`
			Of    int  `json:"of"`
		} `json:"rows"`
	}
	if json.Unmarshal([]byte(data), &v) != nil {
		return false
	}
	before := *s
	switch event {
	case "state":
		if s.Waiting, s.Next = 0, ""; len(v.Queues) > 0 {
			s.Waiting, s.Next = v.Queues[0].Waiters, v.Queues[0].Next.Text
		}
	case "locks":
		if s.Owner, s.Votes, s.Of = "", 0, 0; len(v.Rows) > 0 {
			s.Owner, s.Votes, s.Of = v.Rows[0].Owner.Text, v.Rows[0].Votes, v.Rows[0].Of
		}
	}
	return *s != before
}

func (w *pageWatch) await(t *testing.T, what string, is func(lockView) bool) {
	t.Helper()
	var last lockView
	for late := time.After(patience(0)); ; {
		select {
		case last = <-w.states:
			if is(last) {
				return
			}
		case <-late:
			t.Fatalf("the page never says %s; last: %+v", what, last)
		}
	}
}

// svg is the tour as an animation that begins anew when it is over.
func (r *tour) svg() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	length := time.Since(r.began) + 3*time.Second // time to look at the end
	var styles, body strings.Builder
	n := 0
	// from shows an element from one time to another.
	from := func(start, end time.Duration, element string) {
		n++
		first, last := 100*start.Seconds()/length.Seconds(), 100*end.Seconds()/length.Seconds()
		fmt.Fprintf(&styles, "@keyframes k%d{0%%{opacity:0}%.2f%%{opacity:1}%.2f%%{opacity:%d}100%%{opacity:%[4]d}}", n, first, last, map[bool]int{true: 1}[end >= length])
		fmt.Fprintf(&body, "<g style=\"animation:k%d %.1fs step-end infinite\">%s</g>\n", n, length.Seconds(), element)
	}
	const lineHeight, terminalHeight, left = 17, 152, 510
	for i, name := range []string{"a", "b", "c"} {
		top := 10 + i*(terminalHeight+10)
		fmt.Fprintf(&body, "<rect class='box' x='10' y='%d' width='490' height='%d' rx='6'/><text class='title' x='22' y='%d'>client %s: redis-cli -p 6380</text>\n", top, terminalHeight, top+20, name)
		row := 0
		for _, l := range r.lines {
			y := top + 42 + row*lineHeight
			switch {
			case l.client != name:
			case l.note:
				from(l.at, length, fmt.Sprintf("<text class='good' x='290' y='%d'>← %s</text>", y-4*lineHeight, html.EscapeString(l.text)))
			case row < 7:
				class := map[bool]string{true: "bad", false: "mono"}[l.text == "Killed"]
				text := l.text
				if class == "bad" {
					text = "kill -9"
				}
				from(l.at, length, fmt.Sprintf("<text class='%s' x='22' y='%d'>%s</text>", class, y, html.EscapeString(text)))
				row++
			}
		}
	}
	fmt.Fprintf(&body, "<rect class='box' x='%d' y='10' width='380' height='%d' rx='6'/><text class='title' x='%d' y='30'>the page: http://127.0.0.1:6381/</text>\n", left, 3*terminalHeight+20, left+12)
	fmt.Fprintf(&body, "<text class='head' x='%d' y='66'>Held locks</text><text class='head' x='%[1]d' y='166'>Waiting at this proxy</text>\n", left+12)
	for i, p := range r.pages {
		end := length
		if i+1 < len(r.pages) {
			end = r.pages[i+1].at
		}
		var shown strings.Builder
		row := func(y int, cells ...string) {
			for column, cell := range cells {
				fmt.Fprintf(&shown, "<text class='mono' x='%d' y='%d'>%s</text>", left+12+column*120, y, html.EscapeString(cell))
			}
		}
		if s := p.state; s.Owner == "" {
			row(94, "Nobody holds a lock.")
		} else {
			row(94, "job", "held by "+s.Owner, fmt.Sprintf("%d of %d votes", s.Votes, s.Of))
		}
		if s := p.state; s.Waiting == 0 {
			row(194, "Nobody waits.")
		} else {
			row(194, "job", fmt.Sprintf("%d waiting", s.Waiting), "next: "+s.Next)
		}
		from(p.at, end, shown.String())
	}
	const style = `text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:#1c2128}.box{fill:#f4f6f8;stroke:#d4dae0}.title{fill:#57606a}.head{font-weight:600}` +
		`.good{fill:#116329;font-weight:600}.bad{fill:#b3141f;font-weight:600}` +
		`@media(prefers-color-scheme:dark){text{fill:#e4e9ee}.box{fill:#191f26;stroke:#303840}.title{fill:#9aa5b1}.good{fill:#6cd182}.bad{fill:#ff8f86}}`
	return fmt.Sprintf("<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 900 %d' role='img' aria-label='Three clients want one lock; its holder is killed, and the next in line has it at once'>\n<style>%s%s</style>\n%s</svg>\n",
		3*(terminalHeight+10)+10, style, styles.String(), body.String())
}
