package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/backends/upstream"
)

const (
	publishTimeout = 2 * time.Second
	publishAtOnce  = 64 // while so many are under way, others are not published
)

// publisher returns a function that publishes messages at the upstream, as the user of its URL. A message that cannot be
// published is logged: clients that wait for it ask again.
func publisher(up *upstream.Upstream, log *slog.Logger) func(channel, message string) {
	room := make(chan struct{}, publishAtOnce)
	return func(channel, message string) {
		select {
		case room <- struct{}{}:
		default:
			log.Warn("grant not published", "error", "too many are being published")
			return
		}
		go func() {
			defer func() { <-room }()
			ctx, cancel := context.WithTimeout(context.Background(), publishTimeout)
			defer cancel()
			if err := publish(ctx, up, channel, message); err != nil {
				log.Warn("grant not published", "error", err)
			}
		}()
	}
}

func publish(ctx context.Context, up *upstream.Upstream, channel, message string) error {
	c, err := up.Pool().Shared(ctx, up.DefaultIdentity(), upstream.MainClass, 0)
	if err != nil {
		return err
	}
	defer upstream.Return(c)
	reply, err := c.Ask(ctx, resp.AppendCommand(nil, "PUBLISH", channel, message), maxReplication)
	if err != nil {
		return err
	}
	return upstream.Refusal(reply)
}
