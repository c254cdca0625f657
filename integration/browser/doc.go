// Package browser looks at the page of the admin server as an operator does: in a real
// Chromium, at a real proxy with real lock nodes.
//
// Its tests run with LOCKPROXY_BROWSER=1, as `make browser` sets it, since they need
// Chromium.
package browser
