package migrate

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/backends"
	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/backends/upstream"
)

// maxAnswer bounds a reply, in bytes.
const maxAnswer = 8 << 20

// ask has one master run a command. An error reply is a reply.
func (m *Masters) ask(ctx context.Context, db int, master *upstream.Pool, args ...string) ([]byte, error) {
	id := m.Of.DefaultIdentity()
	id.DB, id.Proto = db, 2
	c, err := master.Shared(ctx, id, upstream.MainClass, 0)
	if err != nil {
		return nil, ofMaster(master, err)
	}
	defer upstream.Return(c)
	reply, err := c.Ask(ctx, resp.AppendCommand(nil, args...), maxAnswer)
	return reply, ofMaster(master, err)
}

// ofMaster names the master in an error.
func ofMaster(master *upstream.Pool, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("upstream %s: %w", master.Addr(), err)
}

// refusal is an error reply as an error; nil: it is none.
func refusal(reply []byte) error {
	if text, refused := resp.Error(reply); refused {
		return errors.New(text)
	}
	return nil
}

// Keys implements Upstream.
func (m *Masters) Keys(ctx context.Context, db int, match string, most int) (keys []string, complete bool, err error) {
	scan := func(masters []*upstream.Pool) (all bool, err error) {
		for _, master := range masters {
			var found []string
			found, all, err = m.scan(ctx, db, master, match, most)
			if keys = append(keys, found...); err != nil || !all {
				return false, err
			}
		}
		return true, nil
	}
	if m.Of.View().Cluster() {
		complete, err = m.everyMaster(ctx, func(masters []*upstream.Pool) (bool, error) {
			all, err := scan(masters)
			if all && err == nil { // for a key that has moved to a master which had been scanned
				all, err = scan(masters)
			}
			return all, err
		})
	} else {
		complete, err = scan(m.Of.View().Masters())
	}
	slices.Sort(keys)
	if keys = slices.Compact(keys); len(keys) > most {
		keys, complete = keys[:most], false
	}
	return keys, complete, err
}

// scan returns the keys of one master that match, most of them or a little more at most.
func (m *Masters) scan(ctx context.Context, db int, master *upstream.Pool, match string, most int) (keys []string, all bool, err error) {
	for cursor := "0"; ; {
		reply, err := m.ask(ctx, db, master, "SCAN", cursor, "MATCH", match, "COUNT", "1000")
		if err = cmp.Or(err, ofMaster(master, refusal(reply))); err != nil {
			return nil, false, err
		}
		page := resp.Decode(reply)
		if len(page.Elems) != 2 {
			return nil, false, ofMaster(master, errors.New("SCAN was answered with something else than a page"))
		}
		for _, key := range page.Elems[1].Elems {
			keys = append(keys, key.Text)
		}
		if cursor = page.Elems[0].Text; cursor == "0" {
			return keys, true, nil
		}
		if len(keys) > most {
			return keys, false, nil
		}
	}
}

// Values implements Upstream.
func (m *Masters) Values(ctx context.Context, db int, key string) (values []string, err error) {
	reply, err := m.askOwner(ctx, db, "GET", key)
	switch refused := refusal(reply); {
	case err != nil:
		return nil, err
	case refused == nil && len(reply) > 1 && reply[1] != '-':
		return []string{string(resp.Bulk(reply))}, nil
	case refused == nil:
		return nil, nil
	case !strings.HasPrefix(refused.Error(), "WRONGTYPE"):
		return nil, refused
	}
	fields, err := m.askOwner(ctx, db, "HKEYS", key)
	if refused := refusal(fields); err == nil && refused != nil && strings.HasPrefix(refused.Error(), "WRONGTYPE") {
		fields, err = m.askOwner(ctx, db, "ZRANGE", key, "0", "-1")
	}
	switch refused := refusal(fields); {
	case err != nil:
		return nil, err
	case refused != nil && strings.HasPrefix(refused.Error(), "WRONGTYPE"):
		return []string{""}, nil // it is in the way of a lock all the same
	case refused != nil:
		return nil, refused
	}
	for _, field := range resp.Decode(fields).Elems {
		values = append(values, field.Text)
	}
	return values, nil
}

// Left implements Upstream.
func (m *Masters) Left(ctx context.Context, db int, key string) (left time.Duration, ends bool, err error) {
	reply, err := m.askOwner(ctx, db, "PTTL", key)
	if err = cmp.Or(err, refusal(reply)); err != nil {
		return 0, false, err
	}
	ms := resp.Int(reply)
	return time.Duration(ms) * time.Millisecond, ms >= 0, nil
}

// Watch implements Upstream. The servers need CLIENT TRACKING: Redis 6.
func (m *Masters) Watch(ctx context.Context, db int, prefix string, changed func(key string)) error {
	watched := m.Of.View().Masters()
	fault := m.watch(ctx, watched, db, prefix, changed)
	if fault != nil || !m.Of.View().Cluster() {
		return fault
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), clusterWait)
	defer cancel()
	return m.haveAll(ctx, watched)
}

func (m *Masters) watch(ctx context.Context, masters []*upstream.Pool, db int, prefix string, changed func(key string)) error {
	id := m.Of.DefaultIdentity()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	var mu sync.Mutex
	var fault error
	for _, master := range masters {
		all.Go(func() {
			if err := watch(ctx, master.Server(), id, db, prefix, changed); err != nil && ctx.Err() == nil {
				mu.Lock()
				defer mu.Unlock()
				fault = cmp.Or(fault, ofMaster(master, err))
				cancel()
			}
		})
	}
	all.Wait()
	return fault
}

// watch follows one server on a connection of its own.
func watch(ctx context.Context, s *backends.Server, id upstream.Identity, db int, prefix string, changed func(key string)) error {
	conn, r, err := dial(ctx, s, id, "3", db)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	tracking := []string{"CLIENT", "TRACKING", "ON", "BCAST"}
	if prefix != "" {
		tracking = append(tracking, "PREFIX", prefix)
	}
	if reply, err := tell(conn, r, tracking); err != nil || refusal(reply) != nil {
		return cmp.Or(err, refusal(reply))
	}
	for {
		raw, err := resp.Read(r, &limits)
		if err != nil {
			return err
		}
		push := resp.Decode(raw)
		if push.Kind != '>' || len(push.Elems) < 2 || push.Elems[0].Text != "invalidate" {
			continue
		}
		for _, key := range push.Elems[1].Elems {
			changed(key.Text)
		}
	}
}

// dial opens a connection of its own to a server, which the end of ctx ends.
func dial(ctx context.Context, s *backends.Server, id upstream.Identity, proto string, db int) (conn net.Conn, r *bufio.Reader, err error) {
	if conn, err = s.Dial(ctx); err != nil {
		return nil, nil, err
	}
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	hello := []string{"HELLO", proto}
	if id.User != "" || id.Secret != "" {
		hello = append(hello, "AUTH", cmp.Or(id.User, "default"), id.Secret)
	}
	r = bufio.NewReader(conn)
	for _, command := range [][]string{hello, {"SELECT", strconv.Itoa(db)}} {
		if db == 0 && command[0] == "SELECT" {
			continue
		}
		reply, err := tell(conn, r, command)
		if err = cmp.Or(err, refusal(reply)); err != nil {
			conn.Close()
			return nil, nil, err
		}
	}
	return conn, r, nil
}

var limits = resp.Limits{Values: maxAnswer, Depth: 16, Size: maxAnswer}

// tell sends a command, and returns the reply.
func tell(conn net.Conn, r *bufio.Reader, command []string) ([]byte, error) {
	if _, err := conn.Write(resp.AppendCommand(nil, command...)); err != nil {
		return nil, err
	}
	return resp.Read(r, &limits)
}
