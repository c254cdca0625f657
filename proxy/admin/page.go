package admin

import (
	"fmt"
	"net/http"
)

// page serves what an operator looks at.
func (s *Server) page(mux *http.ServeMux) {
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		fmt.Fprintf(w, "lockproxy %s\n\n/healthz  /readyz?verbose  /metrics\n", s.opt.Version)
	})
}
