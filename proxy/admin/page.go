package admin

import (
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net/http"
	"strings"
	"time"
)

// pageFS is the page. Nothing is built, and nothing is loaded from other origins.
//
//go:embed page
var pageFS embed.FS

const (
	sendTimeout = 5 * time.Second // of one event to a viewer
	lockTimeout = 5 * time.Second // of the nodes' answers about one lock
)

// page serves the page, its events and its actions.
func (s *Server) page(mux *http.ServeMux) {
	file := func(pattern, name string) {
		mux.HandleFunc("GET "+pattern, func(w http.ResponseWriter, r *http.Request) {
			http.ServeFileFS(w, r, pageFS, "page/"+name)
		})
	}
	mux.HandleFunc("GET /{$}", s.index)
	for _, name := range []string{"adopt.js", "app.js", "detail.js", "dom.js", "force.js", "format.js", "history.js", "locks.js", "spark.js", "timeline.js", "style.css", "icon.svg"} {
		file("/"+name, name)
	}
	mux.HandleFunc("GET /page/events", s.events)
	mux.HandleFunc("GET /page/lock", s.detail)
	mux.HandleFunc("GET /page/adopt", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, s.opt.Observer.Report()) })
	mux.HandleFunc("GET /page/history", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, s.history.view()) })
	mux.HandleFunc("POST /page/force", s.force)
}

// indexHTML has a mark where what the proxy knows comes in.
//
//go:embed page/index.html
var indexHTML string

// index is the page with all that it shows first, so that there is something to see before the first event. It has a few gaps to fill: html/template would cost 12 MB for that (docs/decisions/0030).
func (s *Server) index(w http.ResponseWriter, r *http.Request) {
	state, _ := s.feed.state()
	first, err := json.Marshal(map[string]any{"state": state, "locks": s.feed.first.locks(r.Context()), "history": s.history.view()})
	if err != nil {
		s.opt.Log.Error("the page cannot be made", "error", err)
		http.Error(w, "the page cannot be made", http.StatusInternalServerError)
		return
	}
	var checks strings.Builder
	for _, c := range state.Health {
		class, mark := "", "✓"
		if !c.OK {
			class, mark = ` class="bad"`, "✗"
		}
		fmt.Fprintf(&checks, "<li%s>%s %s: %s</li>", class, mark, html.EscapeString(c.Of), html.EscapeString(c.Says))
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	page := strings.NewReplacer("{{first}}", html.EscapeString(string(first)), "{{checks}}", checks.String(),
		"{{kind}}", state.Summary.Kind, "{{says}}", html.EscapeString(state.Summary.Says)).Replace(indexHTML)
	_, _ = io.WriteString(w, page) // fails only if the client has left
}

// events sends server-sent events to one page, until it leaves, is too slow, or the server
// ends.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	filter := r.URL.Query().Get("filter")
	if len(filter) > maxFilter {
		http.Error(w, "the filter is too long", http.StatusBadRequest)
		return
	}
	v, err := s.feed.join(filter)
	if err != nil {
		w.Header().Set("Retry-After", "5")
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	defer s.feed.leave(v)
	out := http.NewResponseController(w)
	_ = out.SetReadDeadline(time.Time{}) // the server's would end the response
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.Header().Set("X-Accel-Buffering", "no")
	send := func(event []byte) error {
		if err := out.SetWriteDeadline(time.Now().Add(sendTimeout)); err != nil {
			return err
		}
		if _, err := w.Write(event); err != nil {
			return err
		}
		return out.Flush()
	}
	for err := send([]byte("retry: 2000\n\n")); err == nil; {
		select {
		case event, ok := <-v.events:
			if !ok {
				return
			}
			err = send(event)
		case <-r.Context().Done():
			return
		}
	}
}

// detail responds with all about one lock that is on the page.
func (s *Server) detail(w http.ResponseWriter, r *http.Request) {
	n, ok := s.feed.keyOf(r.URL.Query().Get("id"))
	if !ok {
		http.Error(w, notOnPage, http.StatusNotFound)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), lockTimeout)
	defer cancel()
	in, err := s.opt.Locks.Inspect(ctx, n)
	writeJSON(w, http.StatusOK, viewDetail(n, in, s.opt.Locks.Waiters(n), s.timelines, err))
}

const notOnPage = "this lock is not on the page any more"

func writeJSON(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v) // fails only if the client has left
}
