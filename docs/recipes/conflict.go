package recipes

import (
	"errors"
	"net/http"
	"time"

	"github.com/redis/go-redis/v9"
)

// Exclusive runs one request at a time for each path. Another one waits its turn as long
// as wait says, 0 for not at all, and is then sent away with 409.
func Exclusive(rdb *redis.Client, ttl, wait time.Duration, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lock, err := Lock(r.Context(), rdb, r.URL.Path, ttl, wait)
		if held := (*Held)(nil); errors.As(err, &held) {
			http.Error(w, "somebody else is at it", http.StatusConflict)
			return
		}
		if err != nil { // NOQUORUM, or no connection: nobody knows who has it
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		defer lock.Unlock(r.Context())
		next.ServeHTTP(w, r)
	})
}
