package etcd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
)

const (
	firstRedial = 50 * time.Millisecond // before a watch that broke is opened again, doubling
	longRedial  = 2 * time.Second
)

// A cutNote tells other proxies that the leases of a holder end earlier than they believe.
type cutNote struct {
	DB    int    `json:"db"`
	Name  []byte `json:"name"`
	Owner []byte `json:"owner"`
	Reads bool   `json:"reads,omitempty"`
}

func newCut(h locks.Holder) *cutNote {
	return &cutNote{DB: h.DB, Name: []byte(h.Name), Owner: []byte(h.Owner), Reads: h.Reader != ""}
}

// Sources implements locks.Notifier: etcd is one, whichever member tells.
func (s *Store) Sources() (all, need int) { return 1, 1 }

// follow takes etcd's word on releases until ctx ends, while anybody wants it.
func (s *Store) follow(ctx context.Context, source *locks.Source) {
	for pause := firstRedial; ctx.Err() == nil; pause = min(2*pause, longRedial) {
		if !source.Needed() {
			select {
			case <-source.Changed():
			case <-ctx.Done():
			}
			continue
		}
		began := s.Now()
		err := s.listen(ctx, source)
		source.Lost()
		if ctx.Err() != nil {
			return
		}
		s.opts.Log.Debug("etcd tells of no releases for a moment", "reason", err)
		if s.Now()-began > longRedial {
			pause = firstRedial
		}
		_ = locks.Sleep(ctx, pause)
	}
}

// listen takes the word of one member until it ends, or the member does not look well.
func (s *Store) listen(ctx context.Context, source *locks.Source) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	member := int(s.client.using.Load())
	ended := make(chan error, 2)
	watch := func(prefix string, filter string, event func(*watchEvent)) error {
		st, err := s.client.watch(ctx, member, watchCreate{Key: []byte(prefix), End: after(prefix), Filters: []string{filter}, PrevKV: filter == "NOPUT"})
		if err != nil {
			return err
		}
		s.group.Go(func() { ended <- st.read(event) })
		return nil
	}
	if err := watch(s.keys().locks(), "NOPUT", func(e *watchEvent) { s.released(source, e) }); err != nil {
		return err
	}
	if err := watch(s.keys().cuts(), "NODELETE", s.wasCut); err != nil {
		return err
	}
	look := time.NewTicker(time.Second)
	defer look.Stop()
	for source.Needed() {
		wanted, _ := source.Changes()
		for _, k := range wanted {
			source.Confirm(k)
		}
		select {
		case <-source.Changed():
		case err := <-ended:
			return err
		case <-look.C:
			if n := s.Nodes()[member]; n.State != locks.NodeVoting && n.State != locks.NodeUnknown {
				return fmt.Errorf("%s: %s", n.Address, n.Brief())
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return errors.New("nobody waits")
}

// released takes the word that the key of a name was removed, or that of a reader or an intent. The revision of that is above the one of the
// grant, and under the one of the next.
func (s *Store) released(source *locks.Source, e *watchEvent) {
	k, kind, ok := s.keys().parseLock(e.KV.Key)
	if !ok {
		return
	}
	rec, mod, err := decode[record](e.Prev)
	if err != nil || rec == nil {
		return
	}
	h := locks.Holder{Key: k, Owner: string(rec.Owner)}
	if kind == isReader {
		h = h.Reading()
	}
	if kind != isIntent && s.host.Keepalive.Keeps(h, rec.fence(mod)) {
		s.host.Keepalive.RecheckIn(cutPause, h, true) // unless it is being given back here
	}
	source.Released(k, rec.Base+e.KV.Mod, locks.Freed)
}

// cutPause is how long a session waits before it looks for a lease that was cut: the answer to whoever cut it here comes
// first.
const cutPause = 5 * time.Millisecond

// wasCut takes the word that a lease ends earlier.
func (s *Store) wasCut(e *watchEvent) {
	var c cutNote
	if json.Unmarshal(e.KV.Value, &c) == nil {
		h := locks.Holder{Key: locks.Key{DB: c.DB, Name: string(c.Name)}, Owner: string(c.Owner)}
		if c.Reads {
			h = h.Reading()
		}
		s.host.Keepalive.RecheckIn(cutPause, h, true)
	}
}

// A stream is a watch that has begun.
type stream struct {
	body  io.Closer
	abort context.CancelFunc // of the request
	dec   *json.Decoder
}

func (st *stream) close() {
	st.abort()
	_ = st.body.Close()
}

// watch begins one at a member, and returns when the member tells of everything from then on.
func (c *client) watch(ctx context.Context, member int, w watchCreate) (*stream, error) {
	body, err := json.Marshal(watchRequest{w})
	if err != nil {
		return nil, err
	}
	within, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	token, err := c.login(within, member, "")
	if err != nil {
		return nil, err
	}
	ctx, abort := context.WithCancel(ctx)
	late := context.AfterFunc(within, abort)
	resp, err := c.send(ctx, member, pathWatch, token, body)
	if err != nil {
		if r := (*refusal)(nil); errors.As(err, &r) && isAuth(r) && token != "" {
			_, err = c.login(within, member, token) // for the next time
		}
		abort()
		return nil, errors.Join(errors.New("watching"), err)
	}
	st := &stream{resp.Body, abort, json.NewDecoder(resp.Body)}
	var first watchResponse
	err = st.dec.Decode(&first)
	if err == nil && (!first.Result.Created || first.Result.Canceled) {
		err = fmt.Errorf("watching: %s%s", first.Result.Reason, first.Error)
		if token != "" { // etcd does not say that it is too old
			_, loginErr := c.login(within, member, token) // for the next time
			err = errors.Join(err, loginErr)
		}
	}
	if !late() && err == nil {
		err = errTimeout
	}
	if err != nil {
		st.close()
		return nil, err
	}
	return st, nil
}

// read calls event for each, until there are no more.
func (st *stream) read(event func(*watchEvent)) error {
	defer st.close()
	for {
		var r watchResponse
		if err := st.dec.Decode(&r); err != nil {
			return plain(err)
		}
		if r.Result.Canceled || len(r.Error) > 0 {
			return fmt.Errorf("etcd ended the watch: %s%s", r.Result.Reason, r.Error)
		}
		for i := range r.Result.Events {
			event(&r.Result.Events[i])
		}
	}
}
