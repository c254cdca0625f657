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

// A forceRequest asks to release the grant that the operator saw, and no other, or what owners read.
type forceRequest struct {
	ID      string `json:"id"`
	Fence   string `json:"fence"`   // unless Readers
	Readers bool   `json:"readers"` // from all who read it, if nobody has it alone
	Typed   string `json:"typed"`   // the name as the page shows it
}

// A forceReply is the outcome, in words for an operator.
type forceReply struct {
	Done bool   `json:"done"`
	Says string `json:"says"`
}

// force releases a lock by force, if --admin-force is set and the name was typed.
func (s *Server) force(w http.ResponseWriter, r *http.Request) {
	if !s.opt.Force {
		writeJSON(w, http.StatusForbidden, forceReply{Says: "locks are not taken away here: --admin-force is not set"})
		return
	}
	var req forceRequest
	dec := json.NewDecoder(r.Body)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&req); err != nil {
		writeJSON(w, http.StatusBadRequest, forceReply{Says: "this is not a request to take a lock away"})
		return
	}
	n, ok := s.feed.keyOf(req.ID)
	fence, err := strconv.ParseInt(req.Fence, 10, 64)
	if req.Readers {
		fence, err = locks.OfReaders, nil
	}
	switch {
	case !ok:
		writeJSON(w, http.StatusNotFound, forceReply{Says: notOnPage + "; look again"})
	case err != nil || fence <= 0 && !req.Readers:
		writeJSON(w, http.StatusBadRequest, forceReply{Says: "this is not a fence"})
	case req.Typed != short(n.Name).Text:
		writeJSON(w, http.StatusUnprocessableEntity, forceReply{Says: "what was typed is not the name of the lock; nothing was done"})
	default:
		code, a := s.forceGrant(r, n, fence)
		writeJSON(w, code, a)
	}
}

// forceGrant takes away the grant with a fence, or that of every reader.
func (s *Server) forceGrant(r *http.Request, n locks.Key, fence int64) (code int, a forceReply) {
	// A browser that disconnects does not leave it half done.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), lockTimeout)
	defer cancel()
	of := func() (locks.Holding, bool, error) { return s.opt.Locks.ForceGrant(ctx, n, fence) }
	if fence == locks.OfReaders {
		of = func() (locks.Holding, bool, error) { return s.opt.Locks.ForceReaders(ctx, n) }
	}
	was, held, err := of()
	var other *locks.OtherGrantError
	switch {
	case errors.As(err, &other):
		return http.StatusConflict, forceReply{Says: "the lock has moved on: " + shownOwner(other.Now.Owner) + " has it under fence " + strconv.FormatInt(other.Now.Fence, 10) + ". Nothing was taken away"}
	case err != nil:
		s.logForce(r, n, fence).Warn("lock not forced", "error", err)
		return http.StatusServiceUnavailable, forceReply{Says: "it may be done in part, try again: " + shown(err.Error())}
	case !held:
		return http.StatusConflict, forceReply{Says: "nobody has the lock any more. Nothing was taken away"}
	}
	log := s.logForce(r, n, was.Fence)
	if was.Reader != "" {
		log = log.With("readers", was.Readers)
	}
	log.Warn("lock forced", "info", commands.Brief(was.Info))
	return http.StatusOK, forceReply{Done: true, Says: "taken away from " + whoHad(was)}
}

// whoHad says from whom a lock was taken.
func whoHad(was locks.Holding) string {
	owner, fence := shortOwner(was.Owner).Text, strconv.FormatInt(was.Fence, 10)
	switch {
	case was.Reader == "":
		return owner + ", who had it under fence " + fence
	case was.Readers == 1:
		return owner + ", who shared it under fence " + fence
	}
	return strconv.Itoa(was.Readers) + " who shared it"
}

// logForce is a log with the operator and the lock, in the fields of docs/logging.md. The
// user name is any that was given with the password.
func (s *Server) logForce(r *http.Request, n locks.Key, fence int64) *slog.Logger {
	user, _, _ := r.BasicAuth()
	return s.opt.Log.With("db", n.DB, "lock", commands.Brief(n.Name), "fence", fence, "user", commands.Brief(user), "client", r.RemoteAddr)
}
