package recipes

import (
	"context"
	"crypto/rand"
	_ "embed"
	"time"

	"github.com/redis/go-redis/v9"
)

// LockAll takes all of these names or none, waiting for them as long as wait says, or returns a *Held. There is a grant for each name.
func LockAll(ctx context.Context, rdb *redis.Client, names []string, ttl, wait time.Duration) (map[string]*Grant, error) {
	owner := rand.Text()
	command := append(several("LOCKALL", names), ttl.Milliseconds(), "OWNER", owner,
		"WAIT", wait.Milliseconds(), "REQ", owner, "RETRYAFTER")
	reply, err := rdb.Do(ctx, command...).Slice()
	if err != nil {
		return nil, err
	}
	if remaining, held := reply[2].(int64); held {
		return nil, &Held{Name: reply[4].(string), Remaining: time.Duration(remaining) * time.Millisecond}
	}
	grants := map[string]*Grant{}
	for _, one := range reply[2:] {
		grant := one.([]any)
		name := grant[0].(string)
		grants[name] = &Grant{Redis: rdb, Name: name, Owner: owner, Fence: grant[1].(int64)}
	}
	return grants, nil
}

// several begins a command for several names.
func several(verb string, names []string) []any {
	command := []any{verb, len(names)}
	for _, name := range names {
		command = append(command, name)
	}
	return command
}

// Transfer moves an amount between two accounts if may says so, which gets the balance of the first and may take long: neither
// account changes meanwhile. It waits for both as long as wait says, or returns a *Held.
func Transfer(ctx context.Context, rdb *redis.Client, from, to string, amount int64, ttl, wait time.Duration, may func(ctx context.Context, balance int64) error) error {
	names := []string{from, to}
	grants, err := LockAll(ctx, rdb, names, ttl, wait)
	if err != nil {
		return err
	}
	defer rdb.Do(context.WithoutCancel(ctx), append(several("UNLOCKALL", names), grants[from].Owner)...)
	within, cancel := context.WithTimeout(ctx, ttl*9/10) // the leases began before we heard of them
	defer cancel()
	balance, err := rdb.HGet(within, from, "balance").Int64()
	if err != nil {
		return err
	}
	if err := may(within, balance); err != nil {
		return err
	}
	return grants[from].Move(within, grants[to], amount)
}

//go:embed transfer.lua
var transferLua string

var transfer = redis.NewScript(transferLua)

// Move moves an amount from the account of one grant to that of another, or returns ErrStale.
func (g *Grant) Move(ctx context.Context, to *Grant, amount int64) error {
	n, err := transfer.Run(ctx, g.Redis, []string{g.Name, to.Name}, amount, g.Fence, to.Fence).Int()
	if err == nil && n == 0 {
		err = ErrStale
	}
	return err
}
