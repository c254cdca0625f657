// A module of its own: what it needs to drive Chromium, nothing else wants.
module github.com/lockproxy/lockproxy/integration/browser

go 1.26.0

require (
	github.com/chromedp/cdproto v0.159.0
	github.com/chromedp/chromedp v0.23.0
	github.com/lockproxy/lockproxy v0.0.0
)

require (
	github.com/go-json-experiment/json v0.0.0-20260213210345-44df1a37e875 // indirect
	golang.org/x/sync v0.24.0 // indirect
)

replace github.com/lockproxy/lockproxy => ../..
