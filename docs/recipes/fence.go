package recipes

import (
	"context"
	"database/sql"
	_ "embed"

	"github.com/redis/go-redis/v9"
)

// Store writes a value on behalf of a holder, or returns ErrStale.
func (g *Grant) Store(ctx context.Context, db *sql.DB, id int, value string) error {
	res, err := db.ExecContext(ctx, `
		UPDATE account SET value = :value, fence = :fence
		WHERE id = :id AND fence < :fence`,
		sql.Named("value", value), sql.Named("fence", g.Fence), sql.Named("id", id))
	if err != nil {
		return err
	}
	if n, err := res.RowsAffected(); err != nil || n > 0 {
		return err
	}
	return ErrStale
}

//go:embed fenced.lua
var fencedLua string

var fenced = redis.NewScript(fencedLua)

// Set writes a value on behalf of a holder, or returns ErrStale.
func (g *Grant) Set(ctx context.Context, key, value string) error {
	n, err := fenced.Run(ctx, g.Redis, []string{key}, value, g.Fence).Int()
	if err == nil && n == 0 {
		err = ErrStale
	}
	return err
}
