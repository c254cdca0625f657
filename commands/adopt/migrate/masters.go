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

// ask asks every master, until one answers with no error if one is enough.
func (m *Masters) ask(ctx context.Context, db int, each func(ask func(args ...string) ([]byte, error)) (enough bool, err error)) error {
	id := m.Of.DefaultIdentity()
	id.DB, id.Proto = db, 2
	for _, master := range m.Of.View().Masters() {
		c, err := master.Shared(ctx, id, upstream.MainClass, 0)
		if err != nil {
			return fmt.Errorf("upstream %s: %w", master.Addr(), err)
		}
		enough, err := each(func(args ...string) ([]byte, error) {
			reply, err := c.Ask(ctx, resp.AppendCommand(nil, args...), maxAnswer)
			if text, refused := resp.Error(reply); err == nil && refused {
				err = errors.New(text)
			}
			if err != nil {
				err = fmt.Errorf("upstream %s: %w", master.Addr(), err)
			}
			return reply, err
		})
		upstream.Return(c)
		if enough || err != nil {
			return err
		}
	}
	return nil
}

// Keys implements Upstream.
func (m *Masters) Keys(ctx context.Context, db int, match string, most int) (keys []string, complete bool, err error) {
	complete = true
	err = m.ask(ctx, db, func(ask func(...string) ([]byte, error)) (bool, error) {
		for cursor := "0"; ; {
			reply, err := ask("SCAN", cursor, "MATCH", match, "COUNT", "1000")
			if err != nil {
				return false, err
			}
			page := resp.Decode(reply)
			if len(page.Elems) != 2 {
				return false, errors.New("SCAN was answered with something else than a page")
			}
			for _, key := range page.Elems[1].Elems {
				keys = append(keys, key.Text)
			}
			if cursor = page.Elems[0].Text; cursor == "0" {
				return false, nil
			}
			if len(keys) > most {
				complete = false
				return true, nil
			}
		}
	})
	slices.Sort(keys)
	if keys = slices.Compact(keys); len(keys) > most {
		keys, complete = keys[:most], false
	}
	return keys, complete, err
}

// Values implements Upstream.
func (m *Masters) Values(ctx context.Context, db int, key string) (values []string, err error) {
	err = m.ask(ctx, db, func(ask func(...string) ([]byte, error)) (bool, error) {
		reply, err := ask("GET", key)
		if err == nil {
			if len(reply) > 1 && reply[1] != '-' {
				values = []string{string(resp.Bulk(reply))}
			}
			return true, nil
		}
		if strings.Contains(err.Error(), "MOVED ") || strings.Contains(err.Error(), "CLUSTERDOWN") {
			return false, nil
		}
		if !strings.Contains(err.Error(), "WRONGTYPE") {
			return false, err
		}
		fields, err := ask("HKEYS", key)
		if err != nil && strings.Contains(err.Error(), "WRONGTYPE") {
			values, err = []string{""}, nil // it is in the way of a lock all the same
		}
		for _, field := range resp.Decode(fields).Elems {
			values = append(values, field.Text)
		}
		return true, err
	})
	return values, err
}

// Watch implements Upstream. The servers need CLIENT TRACKING: Redis 6.
func (m *Masters) Watch(ctx context.Context, db int, prefix string, changed func(key string)) error {
	id := m.Of.DefaultIdentity()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	var mu sync.Mutex
	var fault error
	for _, master := range m.Of.View().Masters() {
		all.Go(func() {
			if err := watch(ctx, master.Server(), id, db, prefix, changed); err != nil && ctx.Err() == nil {
				mu.Lock()
				defer mu.Unlock()
				fault = cmp.Or(fault, fmt.Errorf("upstream %s: %w", master.Addr(), err))
				cancel()
			}
		})
	}
	all.Wait()
	return fault
}

// watch follows one server on a connection of its own.
func watch(ctx context.Context, s *backends.Server, id upstream.Identity, db int, prefix string, changed func(key string)) error {
	conn, err := s.Dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	hello := []string{"HELLO", "3"}
	if id.User != "" || id.Secret != "" {
		hello = append(hello, "AUTH", cmp.Or(id.User, "default"), id.Secret)
	}
	tracking := []string{"CLIENT", "TRACKING", "ON", "BCAST"}
	if prefix != "" {
		tracking = append(tracking, "PREFIX", prefix)
	}
	r := bufio.NewReader(conn)
	for _, command := range [][]string{hello, {"SELECT", strconv.Itoa(db)}, tracking} {
		if db == 0 && command[0] == "SELECT" {
			continue
		}
		if err := tell(conn, r, command); err != nil {
			return err
		}
	}
	for {
		raw, err := resp.Read(r, &resp.Limits{Values: maxAnswer, Depth: 16, Size: maxAnswer})
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

func tell(conn net.Conn, r *bufio.Reader, command []string) error {
	if _, err := conn.Write(resp.AppendCommand(nil, command...)); err != nil {
		return err
	}
	raw, err := resp.Read(r, &resp.Limits{Values: maxAnswer, Depth: 16, Size: maxAnswer})
	if text, refused := resp.Error(raw); err == nil && refused {
		err = errors.New(text)
	}
	return err
}
