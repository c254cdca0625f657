package embedded

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// databases are as many as CONFIG GET says, and INFO looks at.
const databases = 16

// sections are those of INFO, in its order. What is not known is left out, and so are the
// sections about errors and about commands one by one: nobody counts these.
var sections = []struct {
	name string
	text func(*Server) string
}{
	{"Server", (*Server).aboutServer},
	{"Clients", (*Server).aboutClients},
	{"Memory", (*Server).aboutMemory},
	{"Persistence", (*Server).aboutPersistence},
	{"Stats", (*Server).aboutStats},
	{"Replication", (*Server).aboutReplication},
	{"CPU", (*Server).aboutCPU},
	{"Modules", func(*Server) string { return "" }},
	{"Cluster", func(*Server) string { return "cluster_enabled:0\n" }},
	{"Keyspace", (*Server).aboutKeys},
}

// info is the text of INFO of these sections, of all without names.
func (s *Server) info(names []string) string {
	for i, name := range names {
		names[i] = strings.ToLower(name)
	}
	all := len(names) == 0 || slices.ContainsFunc(names, func(n string) bool { return n == "all" || n == "default" || n == "everything" })
	var texts []string
	for _, one := range sections {
		if all || slices.Contains(names, strings.ToLower(one.name)) {
			texts = append(texts, "# "+one.name+"\n"+one.text(s))
		}
	}
	return strings.ReplaceAll(strings.Join(texts, "\n"), "\n", "\r\n")
}

func (s *Server) aboutServer() string {
	up, program := time.Since(s.started), ""
	if path, err := os.Executable(); err == nil {
		program = path
	}
	return fmt.Sprintf(`redis_version:%s
server_name:miniredis
redis_git_sha1:00000000
redis_git_dirty:0
redis_mode:standalone
os:%s %s
arch_bits:%d
process_id:%d
process_supervised:no
run_id:%s
tcp_port:%s
server_time_usec:%d
uptime_in_seconds:%d
uptime_in_days:%d
executable:%s
config_file:
io_threads_active:0
`, version, runtime.GOOS, runtime.GOARCH, strconv.IntSize, os.Getpid(), s.runID, s.port, time.Now().UnixMicro(), int(up.Seconds()), int(up.Hours()/24), program)
}

func (s *Server) aboutClients() string {
	return fmt.Sprintf("connected_clients:%d\ncluster_connections:0\nblocked_clients:%d\ntracking_clients:0\n", s.inner.ClientsLen(), s.blocked())
}

// aboutMemory is about the whole process, of which all embedded servers and the proxy are part.
func (s *Server) aboutMemory() string {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	used, resident := m.HeapAlloc, m.Sys-m.HeapReleased
	s.mu.Lock()
	s.peak = max(s.peak, used)
	peak := s.peak
	s.mu.Unlock()
	return fmt.Sprintf(`used_memory:%d
used_memory_human:%s
used_memory_rss:%d
used_memory_rss_human:%s
used_memory_peak:%d
used_memory_peak_human:%s
used_memory_peak_perc:%.2f%%
maxmemory:0
maxmemory_human:0B
maxmemory_policy:noeviction
mem_fragmentation_ratio:%.2f
mem_fragmentation_bytes:%d
mem_allocator:go
`, used, human(used), resident, human(resident), peak, human(peak), 100*float64(used)/float64(peak), float64(resident)/float64(used), int64(resident)-int64(used))
}

// human is a number of bytes with its unit.
func human(n uint64) string {
	if n < 1024 {
		return fmt.Sprintf("%dB", n)
	}
	value, unit := float64(n)/1024, 0
	for ; value >= 1024 && unit < 3; unit++ {
		value /= 1024
	}
	return fmt.Sprintf("%.2f%c", value, "KMGT"[unit])
}

func (s *Server) aboutPersistence() string {
	return fmt.Sprintf(`loading:0
async_loading:0
rdb_bgsave_in_progress:0
rdb_last_save_time:%d
rdb_last_bgsave_status:ok
rdb_last_bgsave_time_sec:-1
rdb_current_bgsave_time_sec:-1
rdb_saves:0
aof_enabled:0
aof_rewrite_in_progress:0
aof_rewrite_scheduled:0
aof_last_rewrite_time_sec:-1
aof_current_rewrite_time_sec:-1
aof_last_bgrewrite_status:ok
aof_last_write_status:ok
`, s.started.Unix())
}

func (s *Server) aboutStats() string {
	on := s.inner
	s.mu.Lock()
	commands := s.answered + on.TotalCommands()
	s.mu.Unlock()
	return fmt.Sprintf(`total_connections_received:%d
total_commands_processed:%d
rejected_connections:0
sync_full:0
sync_partial_ok:0
sync_partial_err:0
evicted_keys:0
evicted_clients:0
pubsub_channels:%d
pubsub_patterns:%d
pubsubshard_channels:0
latest_fork_usec:0
total_forks:0
tracking_total_keys:0
tracking_total_items:0
tracking_total_prefixes:0
`, on.TotalConnections(), commands, len(s.m.PubSubChannels("")), s.m.PubSubNumPat())
}

func (s *Server) aboutReplication() string {
	return fmt.Sprintf(`role:master
connected_slaves:0
master_failover_state:no-failover
master_replid:%s
master_replid2:%040d
master_repl_offset:0
second_repl_offset:-1
repl_backlog_active:0
repl_backlog_first_byte_offset:0
repl_backlog_histlen:0
`, s.replID, 0)
}

// aboutCPU is about the whole process, too.
func (s *Server) aboutCPU() string {
	var own, children syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &own) // which cannot fail
	_ = syscall.Getrusage(syscall.RUSAGE_CHILDREN, &children)
	seconds := func(t syscall.Timeval) float64 { return time.Duration(t.Nano()).Seconds() }
	return fmt.Sprintf("used_cpu_sys:%.6f\nused_cpu_user:%.6f\nused_cpu_sys_children:%.6f\nused_cpu_user_children:%.6f\n",
		seconds(own.Stime), seconds(own.Utime), seconds(children.Stime), seconds(children.Utime))
}

func (s *Server) aboutKeys() (text string) {
	for i := range databases {
		db := s.m.DB(i)
		keys, expiring, left := db.Keys(), 0, time.Duration(0)
		for _, k := range keys {
			if ttl := db.TTL(k); ttl > 0 {
				expiring++
				left += ttl
			}
		}
		if len(keys) > 0 {
			text += fmt.Sprintf("db%d:keys=%d,expires=%d,avg_ttl=%d\n", i, len(keys), expiring, left.Milliseconds()/int64(max(expiring, 1)))
		}
	}
	return text
}
