package browser

import (
	"context"
	"fmt"
	"iter"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// patience is how long a page may take to show something: the machine may be busy.
const patience = 30 * time.Second

// startChromium starts one that ends with the test.
func startChromium(t *testing.T) context.Context {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "browser-")
	if err != nil {
		t.Fatal(err)
	}
	opts := []chromedp.ExecAllocatorOption{chromedp.ExecPath(path), chromedp.UserDataDir(dir)}
	for _, name := range []string{
		"headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "no-default-browser-check", "disable-background-networking",
		"disable-component-update", "disable-sync", "disable-default-apps", "disable-extensions", "disable-dev-shm-usage", "hide-scrollbars",
	} {
		opts = append(opts, chromedp.Flag(name, true))
	}
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), opts...)
	ctx, leave := chromedp.NewContext(ctx)
	t.Cleanup(func() {
		_ = chromedp.Cancel(ctx) // waits for its end
		leave()
		cancel()
		_ = os.RemoveAll(dir)
	})
	if err := chromedp.Do(ctx); err != nil {
		t.Fatal(err)
	}
	return ctx
}

// A tab is one page that is open.
type tab struct {
	*testing.T
	ctx context.Context

	mu       sync.Mutex
	complain []string // what stood in the console as an error
}

// open shows a page in a tab of its own until the test ends. Errors in the console fail
// the test, but those that say one of these things.
func open(t *testing.T, chromium context.Context, url string, expected ...string) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(chromium)
	b := &tab{T: t, ctx: ctx}
	console := chromedp.Console(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		b.listen(console)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		for _, text := range b.complaints() {
			if !containsAny(text, expected) {
				t.Errorf("in the console: %s", text)
			}
		}
	})
	b.run(chromedp.EmulateViewport(1280, 900), chromedp.Navigate(url))
	return b
}

// listen collects what is complained of until the tab is closed.
func (b *tab) listen(console iter.Seq2[chromedp.ConsoleMessage, error]) {
	for m, err := range console {
		if err != nil {
			return
		}
		switch m.Type {
		case chromedp.ConsoleError, chromedp.ConsoleWarning, chromedp.ConsoleException:
			b.mu.Lock()
			b.complain = append(b.complain, m.String())
			b.mu.Unlock()
		}
	}
}

func (b *tab) complaints() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.complain...)
}

func containsAny(text string, some []string) bool {
	for _, s := range some {
		if strings.Contains(text, s) {
			return true
		}
	}
	return false
}

func (b *tab) run(actions ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.Fatal(err)
	}
}

// eval is the value of a JavaScript expression, which may be a promise.
func eval[T any](b *tab, js string) T {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](js, chromedp.EvalAwaitPromise))
	if err != nil {
		b.Fatalf("%s: %v", js, err)
	}
	return v
}

// sees waits until a JavaScript expression is true.
func (b *tab) sees(what, js string) {
	b.Helper()
	for end := time.Now().Add(patience); !eval[bool](b, js); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			b.Fatalf("not seen: %s\n%s\nthe page says:\n%s", what, js, eval[string](b, "document.body.innerText"))
		}
	}
}

// row is the expression of the row of a table whose first cell has a name.
func row(table, name string) string {
	return fmt.Sprintf(`[...document.querySelectorAll("#%s tr")].find(r => r.querySelector("td").innerText.includes(%q))`, table, name)
}

// cell is the expression of the text of a cell of such a row.
func cell(table, name, label string) string {
	return fmt.Sprintf(`(%s?.querySelector("td[data-label='%s']")?.innerText ?? "")`, row(table, name), label)
}

func (b *tab) click(js string) {
	b.Helper()
	eval[any](b, "("+js+").click()")
}

// light has the page think that its reader likes this scheme of colours: light, dark or "".
func (b *tab) light(scheme string) {
	b.Helper()
	var p emulation.SetEmulatedMediaParams
	if scheme != "" {
		p.Features = []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}
	}
	if _, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, p); err != nil {
		b.Fatal(err)
	}
}

// screenshot writes what is seen, if LOCKPROXY_SCREENSHOTS names a directory for it.
func (b *tab) screenshot(name string) {
	b.Helper()
	dir := os.Getenv("LOCKPROXY_SCREENSHOTS")
	if dir == "" {
		return
	}
	png, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(dir+"/"+name+".png", png, 0o644); err != nil {
		b.Fatal(err)
	}
}
