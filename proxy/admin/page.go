package admin

import (
	"context"
	"embed"
	"encoding/json"
	"net/http"
	"time"
)

// pageFiles are the page as a browser gets it: nothing is built, and nothing is loaded
// from elsewhere.
//
//go:embed page
var pageFiles embed.FS

const (
	sendTime = 5 * time.Second // for one event to a viewer
	askTime  = 5 * time.Second // for what is asked of the nodes about one lock
)

// page serves what an operator looks at.
func (s *Server) page(mux *http.ServeMux) {
	file := func(pattern, name string) {
		mux.HandleFunc("GET "+pattern, func(w http.ResponseWriter, r *http.Request) {
			http.ServeFileFS(w, r, pageFiles, "page/"+name)
		})
	}
	file("/{$}", "index.html")
	file("/app.js", "app.js")
	file("/style.css", "style.css")
	file("/icon.svg", "icon.svg")
	mux.HandleFunc("GET /page/events", s.events)
	mux.HandleFunc("GET /page/lock", s.detail)
	mux.HandleFunc("POST /page/force", s.force)
}

// events tells one page what there is, as server-sent events, until it leaves, is too
// slow, or the server ends.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	filter := r.URL.Query().Get("filter")
	if len(filter) > maxFilter {
		refuse(w, http.StatusBadRequest, "the filter is too long")
		return
	}
	v, err := s.live.join(filter)
	if err != nil {
		w.Header().Set("Retry-After", "5")
		refuse(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	defer s.live.leave(v)
	out := http.NewResponseController(w)
	_ = out.SetReadDeadline(time.Time{}) // that of the request is over while it lasts
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.Header().Set("X-Accel-Buffering", "no")
	send := func(event []byte) error {
		if err := out.SetWriteDeadline(time.Now().Add(sendTime)); err != nil {
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

// detail tells all about one name that the page was told of.
func (s *Server) detail(w http.ResponseWriter, r *http.Request) {
	n, ok := s.live.name(r.URL.Query().Get("id"))
	if !ok {
		refuse(w, http.StatusNotFound, gone)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), askTime)
	defer cancel()
	in, err := s.opt.Locks.Inspect(ctx, n)
	answer(w, http.StatusOK, viewDetail(n, in, s.opt.Locks.Waiters(n), err))
}

const gone = "this lock is not on the page any more"

// answer writes v as JSON.
func answer(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v) // the client has left, at worst
}
