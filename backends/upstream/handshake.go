package upstream

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/backends"
	"github.com/lockproxy/lockproxy/backends/resp"
)

// maxReply bounds a reply to the pool's own commands, which have short ones.
const maxReply = 64 << 10

// A handshakeResult is what a handshake learned from a server that accepted it.
type handshakeResult struct {
	needsAuth bool  // it demands authentication, which the identity does not have
	id        int64 // its number of the connection; 0: not known
}

// handshakeSteps are the first commands on a connection of id. SELECT is sent both
// before and after AUTH, as the user may not be allowed to, and the default user may
// be off; one success is enough. A private connection must know its number, which
// HELLO tells every user.
func handshakeSteps(id Identity, shared, readOnly bool) (steps [][]string) {
	add := func(args ...string) { steps = append(steps, args) }
	if id.DB != 0 && !id.anonymous() {
		add("SELECT", strconv.Itoa(id.DB))
	}
	if !id.anonymous() {
		add(id.Auth()...)
	}
	switch {
	case id.Proto == 3:
		add("HELLO", "3")
	case !shared:
		add("HELLO", "2")
	}
	if id.DB != 0 {
		add("SELECT", strconv.Itoa(id.DB))
	}
	if len(steps) == 0 {
		add("PING") // tells whether there is a Redis, and whether it demands a password
	}
	if readOnly {
		add("READONLY") // refused where there is no Cluster
	}
	return steps
}

// handshake sends the steps on a bare connection, which must use the database db
// afterwards, and reads their replies. Errors are *RefusedError and those of nc.
func handshake(nc net.Conn, steps [][]string, db int) (hello handshakeResult, err error) {
	if err := nc.SetDeadline(time.Now().Add(backends.DefaultDialTimeout)); err != nil {
		return hello, err
	}
	r := bufio.NewReader(nc)
	selected := db == 0
	var refused *RefusedError
	for i, step := range steps {
		if i == 0 || step[0] == "AUTH" {
			if _, err := nc.Write(nextSteps(steps[i:])); err != nil {
				return hello, err
			}
		}
		reply, err := resp.Read(r, &resp.Limits{Size: maxReply})
		if err != nil {
			return hello, fmt.Errorf("no answer to the greeting: %w", err)
		}
		text, isErr := resp.Error(reply)
		switch {
		case isTurnedAway(text):
			return hello, &RefusedError{Reply: reply}
		case step[0] == "READONLY":
		case step[0] == "PING", step[0] == "HELLO" && step[1] == "2": // commands will get the same LOADING, MASTERDOWN or BUSY
			hello.needsAuth = strings.HasPrefix(text, "NOAUTH")
			hello.id, _, _, _ = resp.IntAfter(reply, "id")
		case step[0] == "SELECT" && !isErr:
			selected = true
		case isErr && step[0] != "SELECT":
			return hello, &RefusedError{Reply: reply}
		case isErr:
			refused = &RefusedError{Reply: reply}
		case step[0] == "HELLO":
			hello.id, _, _, _ = resp.IntAfter(reply, "id")
		}
	}
	if !selected {
		return hello, refused
	}
	return hello, nc.SetDeadline(time.Time{})
}

// nextSteps are the steps that are sent together: those before the next AUTH. Redis
// from 7.2 on and Valkey do not answer an AUTH that they refuse while another reply is
// on its way.
func nextSteps(steps [][]string) (out []byte) {
	for i, s := range steps {
		if i > 0 && s[0] == "AUTH" {
			break
		}
		out = resp.AppendCommand(out, s...)
	}
	return out
}

// isTurnedAway reports whether an error is one that the server sends before it closes
// a new connection: it has too many, or accepts none from other hosts.
func isTurnedAway(text string) bool {
	return strings.HasPrefix(text, "ERR max number of clients") || strings.HasPrefix(text, "DENIED ")
}

// tryLogin is the upstream's reply to a new connection that logs in as id does; nil: it
// did not answer. A shared connection cannot ask: see nextSteps.
func (p *Pool) tryLogin(id Identity) (reply []byte) {
	ctx, cancel := context.WithTimeout(p.ctx, backends.DefaultDialTimeout)
	defer cancel()
	nc, err := p.opt.Server.Dial(ctx)
	if err != nil {
		return nil
	}
	defer nc.Close()
	hello, err := handshake(nc, handshakeSteps(Identity{User: id.User, Secret: id.Secret, Proto: 2}, true, false), 0)
	var refused *RefusedError
	switch {
	case errors.As(err, &refused):
		return refused.Reply
	case err != nil:
		return nil
	case hello.needsAuth:
		return []byte(NoAuth)
	}
	return []byte("+OK\r\n")
}
