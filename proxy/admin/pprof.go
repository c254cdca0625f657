package admin

import (
	"net/http"
	"net/http/pprof"
	"strconv"
)

// maxProfile is the longest duration of a profile, in seconds.
const maxProfile = 120

// profiles serves those of runtime/pprof, but not the process's command line, which may hold
// passwords.
func (s *Server) profiles(mux *http.ServeMux) {
	if !s.opt.Pprof {
		mux.HandleFunc("/debug/pprof/", func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "profiles are served with --admin-pprof", http.StatusNotFound)
		})
		return
	}
	mux.HandleFunc("GET /debug/pprof/", limitSeconds(pprof.Index))
	mux.HandleFunc("GET /debug/pprof/profile", limitSeconds(pprof.Profile))
	mux.HandleFunc("GET /debug/pprof/trace", limitSeconds(pprof.Trace))
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/cmdline", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "not served: a command line may hold passwords", http.StatusNotFound)
	})
}

// limitSeconds refuses profiles of a duration over maxProfile.
func limitSeconds(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		text := r.FormValue("seconds")
		if n, err := strconv.ParseFloat(text, 64); text != "" && (err != nil || !(n <= maxProfile)) {
			http.Error(w, "seconds is a number up to "+strconv.Itoa(maxProfile), http.StatusBadRequest)
			return
		}
		next(w, r)
	}
}
