package admin

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strconv"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/commands"
)

// A forceRequest asks to take a lock away: the grant that the operator saw, and no other.
type forceRequest struct {
	ID    string `json:"id"`
	Fence string `json:"fence"`
	Typed string `json:"typed"` // the name as the page shows it
}

// A forceAnswer says what became of it, in an operator's words.
type forceAnswer struct {
	Done bool   `json:"done"`
	Says string `json:"says"`
}

// force takes a lock away, if that is allowed here and was confirmed.
func (s *Server) force(w http.ResponseWriter, r *http.Request) {
	if !s.opt.Force {
		answer(w, http.StatusForbidden, forceAnswer{Says: "locks are not taken away here: --admin-force is not set"})
		return
	}
	var req forceRequest
	dec := json.NewDecoder(r.Body)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&req); err != nil {
		answer(w, http.StatusBadRequest, forceAnswer{Says: "this is not a request to take a lock away"})
		return
	}
	n, ok := s.live.name(req.ID)
	fence, err := strconv.ParseInt(req.Fence, 10, 64)
	switch {
	case !ok:
		answer(w, http.StatusNotFound, forceAnswer{Says: gone + "; look again"})
	case err != nil || fence <= 0:
		answer(w, http.StatusBadRequest, forceAnswer{Says: "this is not a fence"})
	case req.Typed != short(n.Name).Text:
		answer(w, http.StatusUnprocessableEntity, forceAnswer{Says: "what was typed is not the name of the lock; nothing was done"})
	default:
		code, a := s.forceGrant(r, n, fence)
		answer(w, code, a)
	}
}

func (s *Server) forceGrant(r *http.Request, n locks.Key, fence int64) (code int, a forceAnswer) {
	// A browser that goes away does not leave it half done.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), askTime)
	defer cancel()
	was, held, err := s.opt.Locks.ForceGrant(ctx, n, fence)
	var other *locks.OtherGrantError
	switch {
	case errors.As(err, &other):
		return http.StatusConflict, forceAnswer{Says: "the lock has moved on: " + shown(other.Now.Owner) + " has it under fence " + strconv.FormatInt(other.Now.Fence, 10) + ". Nothing was taken away"}
	case err != nil:
		s.logForce(r, n, fence).Warn("lock not forced", "error", err)
		return http.StatusServiceUnavailable, forceAnswer{Says: "it may be done in part, try again: " + shown(err.Error())}
	case !held:
		return http.StatusConflict, forceAnswer{Says: "nobody has the lock any more. Nothing was taken away"}
	}
	s.logForce(r, n, fence).Warn("lock forced", "info", commands.Brief(was.Info))
	return http.StatusOK, forceAnswer{Done: true, Says: "taken away from " + short(was.Owner).Text + ", who had it under fence " + strconv.FormatInt(was.Fence, 10)}
}

// logForce is a log that says who took which lock away, in the fields of docs/logging.md.
// Whoever has the password may give any user name with it.
func (s *Server) logForce(r *http.Request, n locks.Key, fence int64) *slog.Logger {
	user, _, _ := r.BasicAuth()
	return s.opt.Log.With("db", n.DB, "lock", commands.Brief(n.Name), "fence", fence, "user", commands.Brief(user), "client", r.RemoteAddr)
}
