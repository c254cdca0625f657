package embedded

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// unknown are the fields of a real server's INFO that an embedded one leaves out: it does not
// know them, or has nothing that they would be about.
const unknown = `
redis_build_id monotonic_clock multiplexing_api atomicvar_api gcc_version hz configured_hz lru_clock
maxclients client_recent_max_input_buffer client_recent_max_output_buffer clients_in_timeout_table
used_memory_overhead used_memory_startup used_memory_dataset used_memory_dataset_perc allocator_allocated allocator_active
allocator_resident total_system_memory total_system_memory_human used_memory_lua used_memory_vm_eval used_memory_lua_human
used_memory_scripts_eval number_of_cached_scripts number_of_functions number_of_libraries used_memory_vm_functions
used_memory_vm_total used_memory_vm_total_human used_memory_functions used_memory_scripts used_memory_scripts_human
allocator_frag_ratio allocator_frag_bytes allocator_rss_ratio allocator_rss_bytes rss_overhead_ratio rss_overhead_bytes
mem_not_counted_for_evict mem_replication_backlog mem_total_replication_buffers mem_clients_slaves mem_clients_normal
mem_cluster_links mem_aof_buffer active_defrag_running lazyfree_pending_objects lazyfreed_objects
current_cow_peak current_cow_size current_cow_size_age current_fork_perc current_save_keys_processed current_save_keys_total
rdb_changes_since_last_save rdb_last_cow_size rdb_last_load_keys_expired rdb_last_load_keys_loaded aof_rewrites
aof_rewrites_consecutive_failures aof_last_cow_size module_fork_in_progress module_fork_last_cow_size
instantaneous_ops_per_sec total_net_input_bytes total_net_output_bytes total_net_repl_input_bytes total_net_repl_output_bytes
instantaneous_input_kbps instantaneous_output_kbps instantaneous_input_repl_kbps instantaneous_output_repl_kbps
expired_keys expired_stale_perc expired_time_cap_reached_count expire_cycle_cpu_milliseconds total_eviction_exceeded_time
current_eviction_exceeded_time keyspace_hits keyspace_misses migrate_cached_sockets slave_expires_tracked_keys
active_defrag_hits active_defrag_misses active_defrag_key_hits active_defrag_key_misses total_active_defrag_time
current_active_defrag_time unexpected_error_replies total_error_replies dump_payload_sanitizations total_reads_processed
total_writes_processed io_threaded_reads_processed io_threaded_writes_processed reply_buffer_shrinks reply_buffer_expands
repl_backlog_size used_cpu_sys_main_thread used_cpu_user_main_thread`

// infoFields are the fields of an INFO by their names, each with its section in front.
func infoFields(t *testing.T, text string) map[string]string {
	t.Helper()
	fields, section := map[string]string{}, ""
	for line := range strings.SplitSeq(strings.TrimSuffix(text, "\r\n"), "\r\n") {
		name, value, isField := strings.Cut(line, ":")
		switch {
		case strings.HasPrefix(line, "# "):
			section = line
		case isField:
			fields[section+" "+name] = value
		case line != "":
			t.Errorf("INFO has the line %q", line)
		}
	}
	return fields
}

var form = regexp.MustCompile(`^-?\d+$|^-?\d+\.\d+$|^[\d.]+%$|^[\d.]+[BKMGT]$|^[0-9a-f]{40}$|^keys=\d+,expires=\d+,avg_ttl=\d+$`)

// formOf is a value with its digits removed.
func formOf(value string) string {
	if form.MatchString(value) {
		return regexp.MustCompile(`[0-9a-f]{40}|[\d.]+`).ReplaceAllString(strings.TrimPrefix(value, "-"), "0")
	}
	return "a text"
}

// TestInfo_AsOfARealServer: each field is in the same section of a real server's INFO and has the same form, and the fields
// that are missing are on the list above.
func TestInfo_AsOfARealServer(t *testing.T) {
	real := startReal(t)
	_, addr := startOne(t)
	here, there := redistest.Open(t, addr), redistest.Open(t, real.Addr())
	for _, c := range []*redistest.Conn{here, there} {
		c.Do(t, "SET", "kept", "1")
		c.Do(t, "SET", "ends", "1", "PX", "100000000")
	}
	mine, its := infoFields(t, here.Do(t, "INFO").Text), infoFields(t, there.Do(t, "INFO").Text)
	leftOut := strings.Fields(unknown)
	for name, value := range mine {
		want, isReal := its[name]
		switch _, field, _ := strings.Cut(name[2:], " "); {
		case field == "server_name":
		case !isReal:
			t.Errorf("%s is in no INFO of a real server", name)
		case formOf(value) != formOf(want) && !strings.HasSuffix(field, "_human"):
			t.Errorf("%s is %q, of a real server %q", name, value, want)
		case slices.Contains(leftOut, field):
			t.Errorf("%s is not left out", name)
		}
	}
	for name := range its {
		if _, isHere := mine[name]; !isHere && !slices.Contains(leftOut, name[strings.LastIndex(name, " ")+1:]) {
			t.Errorf("INFO lacks %s", name)
		}
	}
}

// TestInfo_Sections: INFO has the sections that are asked for, in the server's order, in RESP2 and RESP3.
func TestInfo_Sections(t *testing.T) {
	real := startReal(t)
	_, addr := startOne(t)
	here, there := redistest.Open(t, addr), redistest.Open(t, real.Addr())
	heads := func(v redistest.Value) string {
		return strings.Join(regexp.MustCompile(`(?m)^# \w+`).FindAllString(v.Text, -1), " ")
	}
	for _, asked := range []string{"INFO server", "INFO KEYSPACE clients", "INFO nosuch", "INFO nosuch cpu", "INFO modules", "INFO cluster replication"} {
		got, want := here.Do(t, strings.Fields(asked)...), there.Do(t, strings.Fields(asked)...)
		if heads(got) != heads(want) || got.Kind != want.Kind {
			t.Errorf("%s: %v, from a real server %v", asked, got, want)
		}
	}
	for _, asked := range []string{"INFO", "INFO default", "INFO all", "INFO everything", "INFO server all"} {
		if got := heads(here.Do(t, strings.Fields(asked)...)); strings.Count(got, "#") != len(sections) {
			t.Errorf("%s has the sections %q", asked, got)
		}
	}
	if v := redistest.Open3(t, addr).Do(t, "INFO", "server"); v.Kind != '=' || !strings.HasPrefix(v.Text, "txt:# Server\r\nredis_version:") {
		t.Errorf("in RESP3: %v", v)
	}
}

// TestInfo_IsTrue: INFO's numbers of clients, keys and commands are the real ones.
func TestInfo_IsTrue(t *testing.T) {
	s, addr := startOne(t)
	c, waiting := redistest.Open(t, addr), redistest.Open(t, addr)
	c.Do(t, "SET", "kept", "1")
	c.Do(t, "SET", "ends", "1", "PX", "100000000")
	c.Do(t, "SELECT", "3")
	c.Do(t, "HSET", "h", "f", "v")
	c.Do(t, "SUBSCRIBE", "news")
	c.Do(t, "UNSUBSCRIBE")
	waiting.Send(t, redistest.Command("BLPOP", "empty", "0"))
	for end := time.Now().Add(time.Minute); s.blocked() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("BLPOP does not wait")
		}
	}
	c.Do(t, "ROLE")
	got := infoFields(t, c.Do(t, "INFO").Text)
	for name, want := range map[string]string{
		"# Server redis_version": version, "# Server tcp_port": s.port, "# Server run_id": s.runID,
		"# Clients connected_clients": "2", "# Clients blocked_clients": "1",
		"# Stats total_connections_received": "2", "# Stats total_commands_processed": "8", "# Stats pubsub_channels": "0",
		"# Keyspace db3": "keys=1,expires=0,avg_ttl=0",
	} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
	if db0 := got["# Keyspace db0"]; !strings.HasPrefix(db0, "keys=2,expires=1,avg_ttl=99") {
		t.Errorf("the keyspace has %s", db0)
	}
	if other, _ := startOne(t); other.runID == s.runID || other.replID == s.replID {
		t.Error("two servers have one id")
	}
	for n, want := range map[uint64]string{0: "0B", 1023: "1023B", 1024: "1.00K", 1536 << 10: "1.50M", 5 << 40: "5.00T", 5 << 50: "5120.00T"} {
		if got := human(n); got != want {
			t.Errorf("%d bytes are %s, want %s", n, got, want)
		}
	}
}
