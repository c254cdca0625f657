package browser

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// switchVariable, when not empty, runs the tests.
const switchVariable = "LOCKPROXY_BROWSER"

func TestMain(m *testing.M) {
	redistest.Main(m)
}

// lease is long enough for the slowest scene, so that no lock ends by itself.
const lease = "300s"

// A site is two proxies that share five lock nodes, and a browser.
type site struct {
	nodes       []*redistest.Server
	proxy       *redistest.Proxy // locks may be taken away on its page
	other       *redistest.Proxy // not on this one's
	page, quiet string           // their pages
	chromium    context.Context
}

var adminLine = regexp.MustCompile(`admin server listening.* address=(\S+)`)

// pageOf is where a proxy says that its page is.
func pageOf(t *testing.T, p *redistest.Proxy) string {
	t.Helper()
	for end := time.Now().Add(redistest.ReplyTimeout); ; time.Sleep(10 * time.Millisecond) { // it may serve clients first
		if m := adminLine.FindStringSubmatch(p.Log()); m != nil {
			return "http://" + m[1] + "/"
		}
		if time.Now().After(end) {
			t.Fatalf("no admin server:\n%s", p.Log())
		}
	}
}

func newSite(t *testing.T) *site {
	t.Helper()
	data := redistest.Start(t)
	s := &site{nodes: redistest.StartNodes(t, 5), chromium: startChromium(t)}
	args := []string{"--admin", "127.0.0.1:0", "--node-timeout", "2s", "--max-ttl", lease}
	s.proxy = redistest.StartProxy(t, data, s.nodes, append(args, "--admin-force")...)
	s.other = redistest.StartProxy(t, data, s.nodes, args...)
	s.page, s.quiet = pageOf(t, s.proxy), pageOf(t, s.other)
	return s
}

// lock takes a lock through a proxy and returns its fence.
func lock(t *testing.T, c *redistest.Conn, args ...string) string {
	t.Helper()
	v := c.Do(t, append([]string{"LOCK"}, args...)...)
	if v.IsError() || len(v.Elems) < 1 || v.Elems[0].Kind != ':' {
		t.Fatalf("LOCK %.200q: %.200v", args, v)
	}
	return v.Elems[0].Text
}

// TestPage runs one scene after the other: the last ones end lock nodes.
func TestPage(t *testing.T) {
	if os.Getenv(switchVariable) == "" {
		t.Skipf("needs Chromium; set %s=1", switchVariable)
	}
	s := newSite(t)
	for _, scene := range []struct {
		name string
		play func(*testing.T, *site)
	}{
		{"who holds what, without a reload", holders},
		{"who waits", waiters},
		{"who reads", readers},
		{"who has a permit", permits},
		{"order and search", ordered},
		{"drawings, and words for them", drawings},
		{"hostile names", hostile},
		{"a phone", phone},
		{"colours", colours},
		{"the keyboard", keyboard},
		{"taking a lock away", forcing},
		{"what has moved on is not taken away", movedOn},
		{"where nothing may be taken away", forbidden},
		{"many locks", many},
		{"scripts of others do not run", policy},
		{"first, before any event", firstPaint},
		{"not live", notLive},
		{"lock nodes that refuse writes", refusing},
		{"lock nodes that fail", failing},
		{"a proxy that never saw a quorum", neverSeen},
	} {
		t.Run(scene.name, func(t *testing.T) { scene.play(t, s) })
	}
}

// firstPaint is what a page shows that no event has reached.
func firstPaint(t *testing.T, s *site) {
	c := redistest.Open(t, s.proxy.Addr())
	lock(t, c, "first", lease, "OWNER", "worker-1", "INFO", "before any event")
	defer c.Do(t, "UNLOCK", "first", "worker-1")
	b := open(t, s.chromium, "about:blank")
	deaf := page.AddScriptToEvaluateOnNewDocumentParams{Source: `window.EventSource = class extends EventTarget { close() {} }`}
	if _, err := chromedp.Call(b.ctx, page.AddScriptToEvaluateOnNewDocument, deaf); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, patience, "the page comes with the lock", func() bool {
		b.run(chromedp.Navigate(s.page))
		return eval[bool](b, row("locks", "first")+" !== undefined")
	})
	b.sees("who holds it", cell("locks", "first", "Owner")+` === "worker-1" && `+cell("locks", "first", "Info")+` === "before any event"`)
	b.sees("how the nodes are", `document.getElementById("health").innerText.startsWith("Ready: all 5 lock nodes vote")`)
	b.click(row("locks", "first") + `.querySelector("button")`)
	b.sees("all about it", `document.getElementById("detail-why").textContent.includes("first is held by worker-1")`)
}

func holders(t *testing.T, s *site) {
	b := open(t, s.chromium, s.page)
	b.sees("health", `document.getElementById("health").innerText.startsWith("Ready: all 5 lock nodes vote, 3 must agree")`)
	if first := eval[string](b, `fetch(".").then(r => r.text())`); !strings.Contains(first, "lock nodes: 5 of 5 vote") || !strings.Contains(first, "data-first=") {
		t.Errorf("the page comes with %.2000s", first)
	}
	b.sees("five nodes that vote", `[...document.querySelectorAll("#nodes tr")].filter(r => r.innerText.includes("votes")).length === 5`)
	b.sees("no lock", `!document.getElementById("locks-empty").hidden && document.getElementById("locks-empty").innerText === "Nobody holds a lock."`)
	eval[any](b, `window.loaded = "once"; undefined`)

	here, there := redistest.Open(t, s.proxy.Addr()), redistest.Open(t, s.other.Addr())
	fence := lock(t, here, "report:nightly", lease, "OWNER", "worker-7", "INFO", "monthly figures")
	lock(t, here, "report:nightly", lease, "OWNER", "worker-7")
	lock(t, there, "import:42", lease, "OWNER", "worker-3")
	here.Do(t, "SELECT", "3")
	lock(t, here, "in-three", lease, "OWNER", "worker-9")
	b.sees("the holder", cell("locks", "report:nightly", "Owner")+` === "worker-7"`)
	b.sees("the fence", cell("locks", "report:nightly", "Fence")+fmt.Sprintf(` === %q`, fence))
	b.sees("all nodes agree", cell("locks", "report:nightly", "Votes")+` === "5/5"`)
	b.sees("the info", cell("locks", "report:nightly", "Info")+` === "monthly figures"`)
	b.sees("held twice", row("locks", "report:nightly")+`.querySelector("td").innerText.includes("×2")`)
	b.sees("since when", `/^\d\d:\d\d:\d\d$/.test(`+cell("locks", "report:nightly", "Since")+`)`)
	b.sees("how long waited", `/ m?s$/.test(`+cell("locks", "report:nightly", "Waited")+`)`)
	b.sees("granted elsewhere", cell("locks", "import:42", "Waited")+` === "elsewhere"`)
	b.sees("the database", row("locks", "in-three")+`.querySelector("td").innerText.includes("db 3")`)
	b.sees("a hot name", cell("asked", "report:nightly", "Granted")+` !== ""`)
	b.sees("votes are counted", `Number(`+cell("nodes", s.nodes[0].Addr(), "Voted yes")+`.replaceAll(",", "")) > 0`)

	held := eval[string](b, cell("locks", "report:nightly", "Held"))
	since := eval[string](b, cell("locks", "report:nightly", "Since"))
	b.sees("time passes", cell("locks", "report:nightly", "Held")+fmt.Sprintf(` !== %q`, held))
	if now := eval[string](b, cell("locks", "report:nightly", "Since")); now != since {
		t.Errorf("held since %s, then since %s", since, now)
	}

	here.Do(t, "UNLOCK", "in-three", "worker-9")
	b.sees("a lock that was given back is gone", row("locks", "in-three")+` === undefined`)
	if eval[string](b, "String(window.loaded)") != "once" {
		t.Error("the page was loaded again")
	}
	eval[any](b, `const f = document.getElementById("filter"); f.value = "NIGHT"; f.dispatchEvent(new Event("input")); undefined`)
	b.sees("only what is asked for", row("locks", "import:42")+` === undefined && `+row("locks", "report:nightly")+` !== undefined`)
}

func waiters(t *testing.T, s *site) {
	b := open(t, s.chromium, s.page)
	holder := redistest.Open(t, s.proxy.Addr())
	lock(t, holder, "busy", lease, "OWNER", "first")
	for i := range 3 {
		c := redistest.Open(t, s.proxy.Addr())
		c.Send(t, redistest.Command("LOCK", "busy", lease, "OWNER", fmt.Sprint("waiter-", i), "WAIT", lease))
		b.sees("one more waits", cell("queues", "busy", "Waiting")+fmt.Sprintf(` === "%d"`, i+1))
	}
	b.sees("the row counts them too", cell("locks", "busy", "Waiting")+` === "3"`)
	b.sees("the next", cell("queues", "busy", "Next")+` === "waiter-0"`)
	longest := eval[string](b, cell("queues", "busy", "Longest"))
	b.sees("they wait longer", cell("queues", "busy", "Longest")+fmt.Sprintf(` !== %q`, longest))
	b.click(row("queues", "busy") + `.querySelector("button")`)
	b.sees("all who wait, in a dialog", `document.getElementById("detail").open && document.querySelectorAll("#detail-waiters li").length === 3`)
	b.sees("what each node says", `[...document.querySelectorAll("#detail-nodes li")].filter(l => l.innerText.includes("held, by first")).length === 5`)
	holder.Do(t, "UNLOCK", "busy", "first")
	b.sees("the next has it", cell("locks", "busy", "Owner")+` === "waiter-0"`)
	b.sees("and had to wait", `/\d (s|ms)$/.test(`+cell("locks", "busy", "Waited")+`)`)
	b.sees("a name that was waited for", `/\d/.test(`+cell("waited", "busy", "Waited")+`)`)
}

// readers is a name that is read, then read and written by one owner.
func readers(t *testing.T, s *site) {
	b := open(t, s.chromium, s.page)
	c := redistest.Open(t, s.proxy.Addr())
	for _, owner := range []string{"reader-1", "reader-2", "reader-3"} {
		lock(t, c, "prices", lease, "OWNER", owner, "SHARED")
	}
	b.sees("how many read", cell("locks", "prices", "Owner")+` === "shared by 3"`)
	b.sees("no owner's figures", `["Since", "Held", "Waited", "Votes", "Fence"].every(label => `+row("locks", "prices")+`.querySelector("td[data-label=" + label + "]").innerText === "")`)
	b.sees("for how long", `/^\d+m \d\ds$/.test(`+cell("locks", "prices", "Left")+`)`)
	b.screenshot("readers")
	b.run(chromedp.EmulateViewport(360, 740, chromedp.EmulateMobile))
	b.sees("no labels without a text, on a phone", `![...`+row("locks", "prices")+`.querySelectorAll("td:not(.act)")].some(e => e.checkVisibility() && e.innerText.trim() === "")`)
	b.screenshot("readers-phone")
	b.run(chromedp.EmulateViewport(1280, 900))
	b.click(row("locks", "prices") + `.querySelector("button")`)
	b.sees("who shares it", `[...document.querySelectorAll("#detail-readers li")].map(l => l.innerText.replace(/ for \S+ \S+ at most$/, "")).sort().join() === "reader-1,reader-2,reader-3"`)
	b.sees("that it is shared", `document.getElementById("detail-facts").innerText.includes("it is shared")`)
	b.sees("what each node says", `[...document.querySelectorAll("#detail-nodes li")].filter(l => l.innerText.endsWith("shared by 3")).length === 5`)
	b.sees("what the proxy saw", `[...document.querySelectorAll("#detail-timeline li b")].map(e => e.innerText).join() === "shares it,shares it,shares it"`)
	b.screenshot("readers-detail")
	b.click(`document.getElementById("detail-close")`)

	c.Do(t, "UNLOCK", "prices", "reader-1", "SHARED")
	c.Do(t, "UNLOCK", "prices", "reader-2", "SHARED")
	b.sees("that one is left", cell("locks", "prices", "Owner")+` === "shared by 1"`)
	lock(t, c, "prices", lease, "OWNER", "reader-3")
	b.sees("a writer who reads", cell("locks", "prices", "Owner")+` === "reader-3, shared by 1" && `+cell("locks", "prices", "Votes")+` === "5/5"`)
	c.Do(t, "UNLOCK", "prices", "reader-3")
	lock(t, c, "prices", lease, "OWNER", "reader-4", "SHARED")
	b.sees("two readers", cell("locks", "prices", "Owner")+` === "shared by 2"`)
	ask(b, "prices")
	if says := eval[string](b, `document.getElementById("force").innerText`); !strings.Contains(says, "shared by 2, and whoever shares it by then") || !strings.Contains(says, "does not stop those who share it") {
		t.Errorf("the dialog says %q", says)
	}
	b.run(chromedp.SendKeys("#force-typed", "prices"))
	b.screenshot("readers-force")
	b.click(`document.getElementById("force-do")`)
	b.sees("that it is done", `!document.getElementById("force").open`)
	b.sees("that the row says so", row("locks", "prices")+`?.innerText.includes("taken away from 2 who shared it")`)
	for _, owner := range []string{"reader-3", "reader-4"} {
		if v := c.Do(t, "RENEW", "prices", lease, owner, "SHARED"); !v.IsError() {
			t.Errorf("RENEW by %s, whose reading was taken away: %v", owner, v)
		}
	}
	b.click(row("locks", "prices") + `.querySelector("button")`)
	b.sees("that an operator did it", `[...document.querySelectorAll("#detail-timeline li")].some(l => /share taken away by an operator reader-.*, one of 2 that shared it/.test(l.innerText))`)
	b.screenshot("readers-taken")
	b.click(`document.getElementById("detail-close")`)
	b.sees("that nobody reads any more", row("locks", "prices")+`?.innerText.includes("not held") !== false`)
}

// permits is a name with one permit, for which another owner waits.
func permits(t *testing.T, s *site) {
	b := open(t, s.chromium, s.page)
	c, next := redistest.Open(t, s.proxy.Addr()), redistest.Open(t, s.proxy.Addr())
	lock(t, c, "fetch", lease, "OWNER", "has-it", "PERMITS", "1")
	b.sees("that it is shared", cell("locks", "fetch", "Owner")+` === "shared by 1"`)
	next.Send(t, redistest.Command("LOCK", "fetch", lease, "OWNER", "wants-it", "WAIT", lease, "PERMITS", "1"))
	b.sees("that one waits", cell("queues", "fetch", "Waiting")+` === "1"`)
	b.click(row("queues", "fetch") + `.querySelector("button")`)
	b.sees("who has the permit", `document.querySelector("#detail-readers li")?.innerText.startsWith("has-it for ") === true`)
	b.sees("what is waited for", `document.querySelector("#detail-waiters li")?.innerText.startsWith("wants-it with PERMITS 1, for ") === true`)
	b.sees("the same in words", `/1\. wants-it at \S+, to take 1 of 1 permit, for /.test(document.getElementById("detail-why").innerText)`)
	b.click(`document.getElementById("detail-close")`)
	c.Do(t, "UNLOCK", "fetch", "has-it", "SHARED")
	b.sees("that nobody waits any more", row("queues", "fetch")+`?.innerText === undefined`)
}

// attacks are names, owners and infos that want more than to be read.
var attacks = []string{
	`<script>window.pwned = 1</script>`,
	`<img src=x onerror="window.pwned = 1">`,
	`"><svg onload=window.pwned=1>`,
	`javascript:window.pwned=1`,
	"\u202egnp.exe \u2066isolated",
	"\x00\xff\xfe binary \r\n\r\nevent: locks\ndata: {}",
	"event: state\ndata: {\"x\":1}\n\n",
	"שלום مرحبا",
	`__proto__`, `constructor`,
	"Z\u0351\u036b\u0343\u036a\u0302\u036b\u033d\u034f\u0334",
}

func hostile(t *testing.T, s *site) {
	c := redistest.Open(t, s.proxy.Addr())
	for _, a := range attacks {
		lock(t, c, a, lease, "OWNER", a, "INFO", a)
		defer c.Do(t, "UNLOCK", a, a)
	}
	long := strings.Repeat("<b>long</b> ", 64<<10/12)
	lock(t, c, long, lease, "OWNER", strings.Repeat("o", 1024), "INFO", strings.Repeat("W", 256))
	defer c.Do(t, "UNLOCK", long, strings.Repeat("o", 1024))

	b := open(t, s.chromium, s.page)
	for _, shown := range []string{
		attacks[0], attacks[1], attacks[2], attacks[3], `\u202egnp.exe \u2066isolated`, `\x00\xff\xfe binary \r\n\r\nevent: locks\ndata: {}`, attacks[7], "__proto__", "constructor",
	} {
		text := fmt.Sprintf(`[...document.querySelectorAll("#locks tr")].some(r => r.querySelector("td bdi").textContent === %q)`, shown)
		b.sees(shown, text)
	}
	b.sees("the beginning of the long one", row("locks", "<b>long</b>")+` !== undefined`)
	if n := eval[int](b, `document.querySelectorAll("main img, bdi *, main svg:not(.drawn), #locks b, main script, #detail img").length`); n != 0 {
		t.Errorf("%d elements came out of names", n)
	}
	if eval[bool](b, `window.pwned !== undefined`) {
		t.Error("a name was run")
	}
	if wide := eval[int](b, `document.documentElement.scrollWidth - window.innerWidth`); wide > 0 {
		t.Errorf("%d pixels too wide", wide)
	}
	b.click(row("locks", "<b>long</b>") + `.querySelector("button")`)
	b.sees("all of the long one, when asked", fmt.Sprintf(`document.querySelector("#detail-facts dd").textContent.length === %d`, len(long)))
	b.run(chromedp.EmulateViewport(360, 740, chromedp.EmulateMobile))
	b.sees("that it fits a phone", `document.documentElement.scrollWidth <= window.innerWidth && document.getElementById("detail").scrollWidth <= window.innerWidth`)
	b.click(`document.getElementById("detail-close")`)
	b.screenshot("hostile-phone")
	b.sees("that it fits a phone", `document.documentElement.scrollWidth <= window.innerWidth`)
}

func phone(t *testing.T, s *site) {
	c := redistest.Open(t, s.proxy.Addr())
	lock(t, c, "phone:1", lease, "OWNER", "worker-1", "INFO", "on the road")
	defer c.Do(t, "UNLOCK", "phone:1", "worker-1")
	b := open(t, s.chromium, s.page)
	for _, width := range []int64{320, 360, 414, 768, 900} {
		b.run(chromedp.EmulateViewport(width, 740, chromedp.EmulateMobile))
		b.sees("the lock", cell("locks", "phone:1", "Owner")+`.endsWith("worker-1")`)
		b.sees("the page fits", fmt.Sprintf(`window.innerWidth === %d && document.documentElement.scrollWidth <= window.innerWidth`, width))
		small := eval[[]string](b, `[...document.querySelectorAll("button, input")].filter(e => e.checkVisibility())
			.map(e => [e, e.getBoundingClientRect()]).filter(([e, r]) => r.height < 44 || r.width < 44).map(([e, r]) => e.outerHTML + " " + r.width + "x" + r.height)`)
		if len(small) > 0 {
			t.Errorf("at %d pixels too small to be touched: %v", width, small)
		}
	}
	box := func(of string) string { return fmt.Sprintf("document.querySelector(%q).getBoundingClientRect()", of) }
	b.sees("the locks first", box(".held")+`.bottom <= `+box(".side")+`.top && `+box(".held")+`.bottom <= `+box(".now")+`.top`)
	b.run(chromedp.EmulateViewport(1280, 900))
	b.sees("two columns, on a desktop", box(".held")+`.right < `+box(".side")+`.left && `+box(".held")+`.top === `+box(".side")+`.top && `+box(".now")+`.bottom <= `+box(".held")+`.top`)
	b.sees("that they fit", `document.documentElement.scrollWidth <= window.innerWidth`)
	b.run(chromedp.EmulateViewport(901, 740))
	b.sees("a table that fits, from there on", `document.documentElement.scrollWidth <= window.innerWidth && getComputedStyle(`+row("locks", "phone:1")+`).display === "table-row"`)
	b.run(chromedp.EmulateViewport(360, 740, chromedp.EmulateMobile))
	b.sees("labels instead of a head", `getComputedStyle(`+row("locks", "phone:1")+`.querySelector("td[data-label=Owner]"), "::before").content === '"Owner"'`)
}

// contrast finds texts whose colour is too near to what is behind them for WCAG's AA.
const contrast = `(() => {
	const parse = (c) => { const m = c.match(/[\d.]+/g).map(Number); return { rgb: m.slice(0, 3), a: m.length > 3 ? m[3] : 1 }; };
	const light = (rgb) => { const [r, g, b] = rgb.map(v => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
	const behind = (e) => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c.a === 1) return c.rgb; } return [255, 255, 255]; };
	const bad = [];
	for (const e of document.querySelectorAll("body *")) {
		if (!e.checkVisibility() || ![...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim()) || e.disabled) continue;
		const [a, b] = [light(parse(getComputedStyle(e).color).rgb), light(behind(e))];
		const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
		if (ratio < 4.5) bad.push(e.tagName + "." + e.className + " " + e.textContent.trim().slice(0, 30) + " " + ratio.toFixed(2));
	}
	return bad;
})()`

func colours(t *testing.T, s *site) {
	c := redistest.Open(t, s.proxy.Addr())
	lock(t, c, "seen", lease, "OWNER", "worker-1", "INFO", "in all lights")
	defer c.Do(t, "UNLOCK", "seen", "worker-1")
	b := open(t, s.chromium, s.page)
	backs := map[string]bool{}
	for _, scheme := range []string{"light", "dark"} {
		b.light(scheme)
		b.sees("the lock", row("locks", "seen")+` !== undefined`)
		for _, kind := range []string{"good", "warn", "bad"} {
			eval[any](b, fmt.Sprintf(`document.getElementById("locks-error").hidden = false; document.getElementById("locks-error").textContent = "as if"; document.getElementById("locks-error").className = "status %s"; undefined`, kind))
			if bad := eval[[]string](b, contrast); len(bad) > 0 {
				t.Errorf("%s, hard to read: %q", scheme, bad)
			}
		}
		backs[eval[string](b, `getComputedStyle(document.body).backgroundColor`)] = true
	}
	if len(backs) != 2 {
		t.Errorf("backgrounds %v", backs)
	}
}

func keyboard(t *testing.T, s *site) {
	c := redistest.Open(t, s.proxy.Addr())
	lock(t, c, "keys", lease, "OWNER", "worker-1")
	defer c.Do(t, "UNLOCK", "keys", "worker-1")
	b := open(t, s.chromium, s.page)
	b.sees("the lock", row("locks", "keys")+` !== undefined`)
	eval[any](b, `document.getElementById("pause").focus(); undefined`)
	b.run(chromedp.KeyEvent(kb.Tab))
	b.sees("the next is a lock's name, and it is seen where one is", `document.activeElement.className === "name" && getComputedStyle(document.activeElement).outlineStyle !== "none"`)
	b.run(chromedp.KeyEvent(kb.Enter))
	b.sees("the dialog", `document.getElementById("detail").open`)
	b.run(chromedp.KeyEvent(kb.Escape))
	b.sees("that it is closed, and where one was", `!document.getElementById("detail").open && document.activeElement.className === "name"`)
	unlabelled := eval[[]string](b, `[...document.querySelectorAll("input")].filter(e => e.labels.length === 0).map(e => e.id)
		.concat([...document.querySelectorAll("button")].filter(e => !e.textContent.trim() && !e.ariaLabel).map(e => e.outerHTML))`)
	if len(unlabelled) > 0 {
		t.Errorf("without a label: %v", unlabelled)
	}
	if live := eval[[]string](b, `[...document.querySelectorAll("[aria-live]")].map(e => e.id)`); len(live) != 1 || live[0] != "health" {
		t.Errorf("read out when they change: %v", live)
	}
}

// ask opens the dialog that takes a lock away.
func ask(b *tab, name string) {
	b.Helper()
	b.sees("the button", row("locks", name)+`?.querySelector("td.act button").checkVisibility() === true`)
	b.click(row("locks", name) + `.querySelector("td.act button")`)
	b.sees("the dialog", fmt.Sprintf(`document.getElementById("force").open && document.getElementById("force-name").textContent === %q`, name))
}

func forcing(t *testing.T, s *site) {
	b := open(t, s.chromium, s.page, "422")
	c, next := redistest.Open(t, s.proxy.Addr()), redistest.Open(t, s.proxy.Addr())
	fence := lock(t, c, "stuck", lease, "OWNER", "worker-7")
	ask(b, "stuck")
	if says := eval[string](b, `document.getElementById("force").innerText`); !strings.Contains(says, "worker-7") || !strings.Contains(says, fence) || !strings.Contains(says, "does not stop the owner") {
		t.Errorf("the dialog says %q", says)
	}
	b.run(chromedp.SendKeys("#force-typed", "stuc"))
	b.sees("that a wrong name is not enough", `document.getElementById("force-do").disabled`)
	b.run(chromedp.KeyEvent(kb.Enter))
	eval[any](b, `const button = document.getElementById("force-do"); button.disabled = false; button.click(); undefined`) // as a page that does not mind what was typed
	b.sees("that the proxy minds it", `document.getElementById("force-says").innerText.includes("not the name of the lock")`)
	if v := c.Do(t, "RENEW", "stuck", lease, "worker-7"); v.Kind != ':' {
		t.Fatalf("after a wrong name: %v", v)
	}
	next.Send(t, redistest.Command("LOCK", "stuck", lease, "OWNER", "worker-8", "WAIT", lease))
	b.run(chromedp.SendKeys("#force-typed", "k"))
	b.sees("that the name is enough", `!document.getElementById("force-do").disabled`)
	b.screenshot("force")
	b.click(`document.getElementById("force-do")`)
	b.sees("that it is done", `!document.getElementById("force").open`)
	b.sees("that the row says so", row("locks", "stuck")+`?.innerText.includes("taken away from worker-7, who had it under fence `+fence+`")`)
	if v := next.Read(t); v.IsError() || v.Elems[0].Text <= fence {
		t.Errorf("the next: %v", v)
	}
	b.sees("the next one", cell("locks", "stuck", "Owner")+` === "worker-8"`)
	if v := c.Do(t, "UNLOCK", "stuck", "worker-7"); !v.IsError() {
		t.Errorf("UNLOCK by who was forced out: %v", v)
	}
	if log := s.proxy.Log(); !strings.Contains(log, "lock forced") || !strings.Contains(log, "fence="+fence) || !strings.Contains(log, "client=127.0.0.1:") {
		t.Errorf("the log does not say it:\n%s", log)
	}
}

func movedOn(t *testing.T, s *site) {
	b := open(t, s.chromium, s.page, "409")
	c := redistest.Open(t, s.proxy.Addr())
	lock(t, c, "moving", lease, "OWNER", "worker-1")
	ask(b, "moving")
	b.run(chromedp.SendKeys("#force-typed", "moving"))
	c.Do(t, "UNLOCK", "moving", "worker-1")
	lock(t, c, "moving", lease, "OWNER", "worker-2")
	b.click(`document.getElementById("force-do")`)
	b.sees("that it has moved on", `document.getElementById("force-says").innerText.includes("moved on: worker-2 has it")`)
	if v := c.Do(t, "RENEW", "moving", lease, "worker-2"); v.Kind != ':' {
		t.Errorf("the later grant: %v", v)
	}
}

func forbidden(t *testing.T, s *site) {
	b := open(t, s.chromium, s.quiet, "403")
	c := redistest.Open(t, s.other.Addr())
	fence := lock(t, c, "safe", lease, "OWNER", "worker-1")
	b.sees("the lock", row("locks", "safe")+` !== undefined`)
	if eval[bool](b, row("locks", "safe")+`.querySelector("td.act button").checkVisibility()`) {
		t.Error("there is a button")
	}
	says := eval[string](b, fmt.Sprintf(`fetch("page/force", {method: "POST", headers: {"Content-Type": "application/json"},
		body: JSON.stringify({id: "any", fence: %q, typed: "safe"})}).then(r => r.text())`, fence))
	if !strings.Contains(says, "--admin-force is not set") {
		t.Errorf("said %q", says)
	}
	if v := c.Do(t, "UNLOCK", "safe", "worker-1"); v.Int() != 1 {
		t.Errorf("UNLOCK: %v", v)
	}
}

func many(t *testing.T, s *site) {
	const locks = 620
	c := redistest.Open(t, s.proxy.Addr())
	all := func(args ...string) {
		t.Helper()
		var b strings.Builder
		for i := range locks {
			b.WriteString(redistest.Command(append([]string{args[0], fmt.Sprintf("many:%03d", i)}, args[1:]...)...))
		}
		c.Send(t, b.String())
		for range locks {
			if v := c.Read(t); v.IsError() {
				t.Fatal(v)
			}
		}
	}
	all("LOCK", lease, "OWNER", "crowd")
	b := open(t, s.chromium, s.page)
	b.sees("five hundred, and how many more", `document.querySelectorAll("#locks tr").length === 500 && document.getElementById("locks-note").textContent.startsWith("500 of 6") && /^and 1\d\d more/.test(document.getElementById("locks-more").innerText)`)
	eval[any](b, `const f = document.getElementById("filter"); f.value = "many:61"; f.dispatchEvent(new Event("input")); undefined`)
	b.sees("what is beyond, by filter", `document.querySelectorAll("#locks tr").length === 10 && document.getElementById("locks-more").hidden`)
	all("UNLOCK", "crowd")
}

func policy(t *testing.T, s *site) {
	b := open(t, s.chromium, s.page, "Content Security Policy", "Content-Security-Policy")
	b.sees("the page", `document.getElementById("live").innerText === "live"`)
	eval[any](b, `const x = document.createElement("script"); x.textContent = "window.pwned = 1"; document.body.append(x); undefined`)
	eval[any](b, `document.body.insertAdjacentHTML("beforeend", "<img src='data:,' onerror='window.pwned = 1'>"); undefined`)
	blocked := eval[string](b, `fetch("http://127.0.0.1:9/").then(() => "fetched", e => "blocked")`)
	if eval[bool](b, `window.pwned !== undefined`) || blocked != "blocked" {
		t.Errorf("an inline script ran, or something was fetched from elsewhere: %s", blocked)
	}
	if len(b.complaints()) < 2 {
		t.Errorf("the policy did not complain: %q", b.complaints())
	}
}

func notLive(t *testing.T, s *site) {
	b := open(t, s.chromium, s.page)
	b.sees("live", `document.getElementById("live").innerText === "live"`)
	s.proxy.Pause()
	b.sees("not live", `document.getElementById("health").innerText.startsWith("Not live since ")`)
	s.proxy.Resume()
	b.sees("live again", `document.getElementById("live").innerText === "live" && document.getElementById("health").innerText.startsWith("Ready")`)
}

func refusing(t *testing.T, s *site) {
	b := open(t, s.chromium, s.page)
	state := cell("nodes", s.nodes[4].Addr(), "State")
	b.sees("all vote", state+` === "votes"`)
	for _, n := range s.nodes[2:] {
		n.Do(t, "CONFIG", "SET", "maxmemory", "1")
	}
	b.sees("nodes that are full", `/^refuses \(OOM\) since \d\d:\d\d:\d\d$/.test(`+state+`)`)
	b.sees("no quorum", `document.getElementById("health").innerText.startsWith("No quorum: 2 of 5")`)
	since := eval[string](b, state)
	b.run(chromedp.Sleep(3 * time.Second)) // for some events
	if now := eval[string](b, state); now != since {
		t.Errorf("%s, then %s", since, now)
	}
	b.sees("why", cell("nodes", s.nodes[4].Addr(), "Trouble")+`.startsWith("it is full")`)
	b.screenshot("full")
	b.run(chromedp.EmulateViewport(390, 1600, chromedp.EmulateMobile))
	b.screenshot("full-phone")
	for _, n := range s.nodes[2:] {
		n.Do(t, "CONFIG", "SET", "maxmemory", "0")
	}
	b.sees("that they vote again", state+` === "votes" && document.getElementById("health").innerText.startsWith("Ready: all 5")`)
}

func failing(t *testing.T, s *site) {
	c := redistest.Open(t, s.proxy.Addr())
	lock(t, c, "report:nightly", lease, "OWNER", "worker-7", "INFO", "monthly figures")
	b := open(t, s.chromium, s.page)
	state := func(n int) string { return cell("nodes", s.nodes[n].Addr(), "State") }
	b.sees("all vote", state(4)+` === "votes"`)
	s.nodes[4].Kill()
	b.sees("a node that is down", state(4)+`.startsWith("down (connection refused) since ") && document.getElementById("health").innerText.startsWith("Ready, but 4 of 5")`)
	b.sees("that the lock goes on", cell("locks", "report:nightly", "Votes")+` === "4/5"`)
	if err := s.nodes[4].Restart(); err != nil {
		t.Fatal(err)
	}
	b.sees("that it votes again", state(4)+` === "votes"`)
	// It forgets once more, and has heard of an older proxy: so it is not told what the others hold.
	const older = "m300000 2 older"
	word := s.nodes[4].Do(t, "HGET", "lockproxy:node", "word").Text
	s.nodes[4].Do(t, "HSET", "lockproxy:node", older, strconv.FormatInt(time.Now().UnixMilli(), 10), "word", "2"+word[1:], "id", "another")
	b.sees("quarantine, and for how long", `/^quarantine, .* left( at most)?$/.test(`+state(4)+`)`)
	b.sees("it in the quorum", `document.querySelectorAll("#quorum g.warn").length === 1 && document.getElementById("quorum").ariaLabel.includes("4 of 5 lock nodes vote, 3 are needed. `+s.nodes[4].Addr()+`: quarantine, ")`)
	left := eval[string](b, state(4))
	b.sees("the countdown", state(4)+fmt.Sprintf(` !== %q && /^quarantine, .* left( at most)?$/.test(`, left)+state(4)+`)`)
	pictures(t, s, b)
	s.nodes[4].Do(t, "HDEL", "lockproxy:node", older)
	b.sees("that it votes again, but not about the lock", state(4)+` === "votes" && /^it had forgotten its locks, and abstains for the names that were held then, for .* at most$/.test(`+cell("nodes", s.nodes[4].Addr(), "Trouble")+`)`)
	b.sees("all in the quorum", `document.querySelectorAll("#quorum g.good").length === 5`)
	b.screenshot("doubt")
	s.nodes[0].Kill()
	s.nodes[1].Kill()
	s.nodes[2].Kill()
	b.sees("no quorum", `document.getElementById("health").innerText.startsWith("No quorum: 2 of 5")`)
	b.sees("silent ones in the quorum", `document.querySelectorAll("#quorum g.bad").length === 3 && document.getElementById("quorum").textContent.startsWith("2 of 5")`)
	b.sees("what was, and that it is old", `!document.getElementById("locks-error").hidden && `+row("locks", "report:nightly")+` !== undefined`)
	b.screenshot("noquorum")
}

// neverSeen checks the page of a proxy that starts while most lock nodes are down: it says "unknown", not that nobody holds a lock.
func neverSeen(t *testing.T, s *site) {
	p := redistest.StartProxy(t, redistest.Start(t), s.nodes, "--admin", "127.0.0.1:0", "--node-timeout", "2s", "--max-ttl", lease)
	b := open(t, s.chromium, pageOf(t, p))
	b.sees("no quorum", `document.getElementById("health").innerText.startsWith("No quorum: 2 of 5")`)
	b.sees("that it is unknown who holds what", `document.getElementById("locks-note").textContent === "unknown" && !document.getElementById("locks-error").hidden`)
	b.sees("no word of nobody", `document.getElementById("locks-empty").innerText === ""`)
	b.screenshot("never-seen")
}

// pictures are for docs/admin.md, and to be looked at.
func pictures(t *testing.T, s *site, b *tab) {
	if os.Getenv("LOCKPROXY_SCREENSHOTS") == "" {
		return
	}
	c := redistest.Open(t, s.proxy.Addr())
	for _, left := range []string{"busy", "moving", "stuck", "import:42"} {
		c.Do(t, "LOCKCTL", "FORCE", left)
	}
	for i, name := range []string{"import:customers", "import:orders", "invoice:2026-11", "reindex:search", "cron:cleanup"} {
		lock(t, c, name, fmt.Sprint(20+7*i, "s"), "OWNER", fmt.Sprint("web-", i), "INFO", []string{"", "batch 17 of 40", "run by cron"}[i%3])
	}
	for i := range 3 {
		lock(t, c, "catalogue", "51s", "OWNER", fmt.Sprint("shop-", i), "SHARED")
	}
	for i := range 4 {
		w := redistest.Open(t, s.proxy.Addr())
		w.Send(t, redistest.Command("LOCK", "import:orders", "20s", "OWNER", fmt.Sprint("web-", 20+i), "WAIT", lease))
	}
	b.sees("the waiters", cell("locks", "import:orders", "Waiting")+` === "4"`)
	b.sees("no others", `!document.querySelector("#locks tr.gone")`)
	for _, scheme := range []string{"light", "dark"} {
		b.light(scheme)
		b.run(chromedp.EmulateViewport(1280, 900), chromedp.Sleep(300*time.Millisecond))
		b.screenshot("desktop-" + scheme)
		b.run(chromedp.EmulateViewport(390, 900, chromedp.EmulateMobile), chromedp.Sleep(300*time.Millisecond))
		b.screenshot("phone-" + scheme)
	}
	busy := redistest.Open(t, s.proxy.Addr())
	for i := range 3 {
		lock(t, busy, "deploy", "20s", "OWNER", fmt.Sprint("ci-", i))
		w := redistest.Open(t, s.proxy.Addr())
		w.Send(t, redistest.Command("LOCK", "deploy", "20s", "OWNER", fmt.Sprint("ci-", i+10), "INFO", "build 1207", "WAIT", lease))
		b.sees("who waits", cell("queues", "deploy", "Next")+fmt.Sprintf(` === "ci-%d"`, i+10))
		time.Sleep(time.Duration(i+1) * 700 * time.Millisecond)
		if i == 1 {
			busy.Do(t, "LOCKCTL", "FORCE", "deploy")
		} else {
			busy.Do(t, "UNLOCK", "deploy", fmt.Sprint("ci-", i))
		}
		if v := w.Read(t); v.IsError() {
			t.Fatal(v)
		}
		time.Sleep(time.Duration(i+1) * 500 * time.Millisecond)
		if i < 2 {
			w.Do(t, "UNLOCK", "deploy", fmt.Sprint("ci-", i+10))
		}
	}
	b.sees("the lock", cell("locks", "deploy", "Owner")+` === "ci-12"`)
	b.click(row("locks", "deploy") + `.querySelector("button")`)
	b.sees("the axis", `document.querySelectorAll("#detail-axis .holds").length === 6`)
	for _, scheme := range []string{"light", "dark"} {
		b.light(scheme)
		b.run(chromedp.EmulateViewport(760, 900), chromedp.Sleep(300*time.Millisecond))
		b.screenshot("detail-" + scheme)
	}
	b.click(`document.getElementById("detail-close")`)
	b.light("")
	b.run(chromedp.EmulateViewport(1280, 900))
}
