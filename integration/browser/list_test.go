package browser

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// names is the expression of the names of the rows of held locks that begin with a prefix, in their order.
func names(prefix string) string {
	return fmt.Sprintf(`[...document.querySelectorAll("#locks tr td:first-child bdi")].map(e => e.textContent).filter(n => n.startsWith(%q)).join(" ")`, prefix)
}

// choose sets a control of the page as somebody does who uses it.
func (b *tab) choose(id, value, event string) {
	b.Helper()
	eval[any](b, fmt.Sprintf(`{ const e = document.getElementById(%q); e.value = %q; e.dispatchEvent(new Event(%q)); } undefined`, id, value, event))
}

func ordered(t *testing.T, s *site) {
	c := redistest.Open(t, s.proxy.Addr())
	b := open(t, s.chromium, s.page)
	for _, l := range []struct{ name, lease, owner string }{{"o:c", "200s", "carol"}, {"o:a", "100s", "alice"}, {"o:b", "150s", "bob"}} {
		lock(t, c, l.name, l.lease, "OWNER", l.owner, "INFO", "batch of "+l.owner)
		defer c.Do(t, "UNLOCK", l.name, l.owner)
		b.sees(l.name, row("locks", l.name)+` !== undefined`)
	}
	w := redistest.Open(t, s.proxy.Addr())
	w.Send(t, redistest.Command("LOCK", "o:b", lease, "OWNER", "dave", "WAIT", lease))
	b.sees("who waits", cell("locks", "o:b", "Waiting")+` === "1"`)
	for _, o := range []struct{ by, want string }{{"left", "o:a o:b o:c"}, {"held", "o:c o:a o:b"}, {"waiting", "o:b o:a o:c"}, {"name", "o:a o:b o:c"}} {
		b.choose("sort", o.by, "change")
		b.sees("the order by "+o.by, names("o:")+fmt.Sprintf(` === %q && document.querySelectorAll("th[aria-sort]").length === 1`, o.want))
	}

	b.click(`document.querySelector("th[data-sort=left]")`)
	b.sees("the order of a column that is clicked on", names("o:")+` === "o:a o:b o:c" && document.getElementById("sort").value === "left"`)
	at := eval[[]float64](b, `(() => { const r = `+row("locks", "o:a")+`; r.scrollIntoView({block: "center"}); const p = r.getBoundingClientRect(); return [p.x + 5, p.y + 5]; })()`)
	b.run(chromedp.MouseEvent(chromedp.MouseMoved, at[0], at[1]))
	b.sees("the pointer on the rows", `document.querySelector("#locks tr:hover") !== null`)
	c.Do(t, "RENEW", "o:a", "250s", "alice")
	lock(t, c, "o:d", "60s", "OWNER", "erin")
	b.sees("a new one last, and no other that moves", row("locks", "o:d")+` !== undefined && `+names("o:")+` === "o:a o:b o:c o:d"`)
	c.Do(t, "UNLOCK", "o:d", "erin")
	b.sees("one that is given back, where it was", row("locks", "o:d")+`?.className === "gone" && `+names("o:")+` === "o:a o:b o:c o:d"`)
	b.run(chromedp.MouseEvent(chromedp.MouseMoved, 1, 1))
	b.sees("the order, when the pointer has left", names("o:")+` === "o:b o:c o:a"`)

	b.choose("owner", "BATCH OF C", "input")
	b.sees("whose info is like this", names("")+` === "o:c" && document.getElementById("locks-note").textContent.startsWith("1 of ")`)
	b.choose("owner", "nobody", "input")
	b.sees("that there is none", `document.getElementById("locks-empty").checkVisibility() && document.getElementById("locks-empty").textContent.includes("is like this")`)
	b.choose("owner", "", "input")

	b.click(row("locks", "o:b") + `.querySelector("button")`)
	b.sees("why, in words", `document.getElementById("detail-why").textContent.includes("o:b is held by bob, fence ") && document.getElementById("detail-why").textContent.includes("\nnext: free in at most ")`)
	if facts := eval[string](b, `document.getElementById("detail-facts").innerText`); !strings.Contains(facts, "Holds") || !strings.Contains(facts, "taken ") {
		t.Errorf("facts %q", facts)
	}
	b.sees("what happened, the newest first", `[...document.querySelectorAll("#detail-timeline li")].map(e => e.innerText).some(s => /^\d\d:\d\d:\d\d granted bob, .*fence \d+, at 127\.0\.0\.1:\d+$/.test(s))`)
	b.sees("where the holder is", `/Client\s+127\.0\.0\.1:\d+/.test(document.getElementById("detail-facts").innerText)`)
	b.click(`document.getElementById("detail-close")`)
	c.Do(t, "UNLOCK", "o:b", "bob")
	if v := w.Read(t); v.IsError() {
		t.Fatal(v)
	}
	c.Do(t, "LOCKCTL", "FORCE", "o:b")
	lock(t, c, "o:b", lease, "OWNER", "bob")
	b.sees("bob again", cell("locks", "o:b", "Owner")+` === "bob"`)
	b.click(row("locks", "o:b") + `.querySelector("button")`)
	b.sees("the hand-over and the force", `["granted bob", "taken away by an operator dave", "handed over dave", "given back bob", "granted bob"].every((says, i) => document.querySelectorAll("#detail-timeline li")[i]?.innerText.includes(says))`)
	b.sees("bob, dave and bob along the axis, dave's wait, and that it was taken away", `["holds", "holds odd", "holds", "waits", "bad"].every(c => document.querySelectorAll("#detail-axis rect[class='" + c + "']").length === (c === "holds" ? 2 : 1))`)
	b.sees("that in words", `/^Who had it in the last \d+ s: 3 in turn, 1 lost or taken away\./.test(document.getElementById("detail-axis").ariaLabel) && document.querySelector("#detail-axis .odd title").textContent.startsWith("dave has it for ")`)
	b.sees("that they follow each other up to now", `(() => { const r = [...document.querySelectorAll("#detail-axis .holds")].map(e => [+e.getAttribute("x"), +e.getAttribute("width")]); return r.every(([x, w], i) => i === 0 || x >= r[i-1][0] + Math.min(r[i-1][1], 2) - 2.1) && Math.abs(r.at(-1)[0] + r.at(-1)[1] - 1000) <= 2; })()`)
	b.run(chromedp.EmulateViewport(390, 900, chromedp.EmulateMobile))
	b.screenshot("detail-phone")
	b.run(chromedp.EmulateViewport(1280, 900))
	b.screenshot("detail")
}

func drawings(t *testing.T, s *site) {
	c := redistest.Open(t, s.proxy.Addr())
	lock(t, c, "drawn", lease, "OWNER", "worker-1")
	defer c.Do(t, "UNLOCK", "drawn", "worker-1")
	b := open(t, s.chromium, s.page)
	says := func(of, part string) string {
		return fmt.Sprintf(`[...document.querySelectorAll(%q)].some(e => e.role === "img" && e.ariaLabel.includes(%q))`, of, part)
	}
	b.sees("the quorum", `document.querySelectorAll("#quorum g.good").length === 5 && `+says("#quorum", "5 of 5 lock nodes vote, 3 are needed."))
	b.sees("grants of a while ago", `document.querySelector("#history path[d]")?.getTotalLength() > 0 && `+says("#history svg", "granted per s in the last 15 minutes: now "))
	b.sees("the times of answers, and votes", `document.querySelectorAll("#nodes .spark path[d^=M]").length === 20 && `+
		says("#nodes svg", "Times of answers of "+s.nodes[0].Addr())+` && `+says("#nodes svg", "Votes per second of "+s.nodes[0].Addr()))
	if mute := eval[[]string](b, `[...document.querySelectorAll("svg.drawn")].filter(e => !e.ariaLabel && e.ariaHidden !== "true").map(e => e.outerHTML)`); len(mute) > 0 {
		t.Errorf("without words: %v", mute)
	}
	b.sees("that nothing is announced", `document.querySelectorAll("[aria-live] svg, svg[aria-live], svg *[aria-live]").length === 0`)
}
