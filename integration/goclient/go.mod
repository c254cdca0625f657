// A module of its own: it needs the package for applications, which the program does not, and what runs servers in
// tests, which that package does not.
module github.com/lockproxy/lockproxy/integration/goclient

go 1.26.0

require (
	github.com/lockproxy/lockproxy v0.0.0
	github.com/lockproxy/lockproxy/clients/go v0.0.0
	github.com/redis/go-redis/v9 v9.23.0
	github.com/redis/rueidis v1.0.79
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	golang.org/x/sync v0.24.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
)

replace (
	github.com/lockproxy/lockproxy => ../..
	github.com/lockproxy/lockproxy/clients/go => ../../clients/go
)
