package clients

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// tool runs redis-cli or redis-benchmark against the proxy, with input, and
// returns what it printed.
func tool(t *testing.T, s *site, input, name string, args ...string) string {
	t.Helper()
	host, port, err := net.SplitHostPort(s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	cmd, cancel := bounded(programTimeout, name, append([]string{"-h", host, "-p", port}, args...)...)
	defer cancel()
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	return string(out)
}

func redisCLI(t *testing.T, s *site) {
	const keys, many = 2000, 100_000
	var mass strings.Builder
	for i := range keys {
		mass.WriteString(redistest.Command("SET", fmt.Sprint("mass:", i), strings.Repeat("x", i%50)))
	}
	dir := t.TempDir()
	script := filepath.Join(dir, "script.lua")
	if err := os.WriteFile(script, []byte("return {KEYS[1], ARGV[1]}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, input, args string
		single            bool   // what a Cluster cannot do
		want              string // a regular expression of the output
	}{
		{"typed", "SET a 1\nINCR a\nGET none\nLPUSH a x\nMULTI\nINCR a\nEXEC\n", "", false, `^OK\n2\n\nWRONGTYPE [^\n]*\n\nOK\nQUEUED\n3\n$`},
		{"typed SELECT", "SELECT 3\nGET a\n", "", true, `^OK\n\n$`},
		{"typed locks", "LOCK job 30s OWNER me\nLOCK job 30s OWNER you\nUNLOCK job me\nRENEW job 30s me\n", "--no-raw", false, `^1\) \(integer\) \d+\n2\) "me"\n3\) \(integer\) \d+\n4\) \(integer\) 1\n\(nil\)\n\(integer\) 1\n\(error\) LOCKLOST [^\n]*\n$`},
		{"RESP3", "HSET h f v\nHGETALL h\nLOCK h 30s OWNER me\nLOCK h 30s\n", "-3 --no-raw", false, `\n1# "f" => "v"\n1\) \(integer\) \d+\n(.*\n){3}\(nil\)\n$`},
		{"--pipe", mass.String(), "--pipe", false, fmt.Sprintf(`errors: 0, replies: %d\n$`, keys)},
		{"--scan", "", "--scan --pattern mass:19*", false, `^(mass:19\d*\n){111}$`},
		{"--bigkeys", "", "--bigkeys", false, fmt.Sprintf(`Sampled %d keys`, keys+2)},
		{"--memkeys", "", "--memkeys --memkeys-samples 1", false, fmt.Sprintf(`Sampled %d keys`, keys+2)},
		{"-x", "\x00\r\n$-1\r\n", "-x SET binary", false, `^OK\n$`},
		{"--no-raw", "", "--no-raw GET binary", false, `^"\\x00\\r\\n\$-1\\r\\n"\n$`},
		{"--csv", "", "--csv MGET a none", false, `^"3",NULL\n$`},
		{"--json", "", "--json HGETALL h", false, `^\{"f":"v"\}\n$`},
		{"--eval", "", "--eval " + script + " k , v", false, `^k\nv\n$`},
		{"--ldb", "continue\n", "--ldb --eval " + script + " k , v", true, `1\) "k"\n2\) "v"\n\n\(Lua debugging session ended`},
		{"EVAL", "", "EVAL return{KEYS[1],ARGV[1]} 1 k v", false, `^k\nv\n$`},
		{"--user", "", "--user app --pass pw --no-auth-warning ACL WHOAMI", false, `^app\n$`},
		{"-n", "", "-n 5 DBSIZE", true, `^0\n$`},
		{"-r", "", "-r 3 -i 0.1 INCR repeated", false, `^1\n2\n3\n$`},
		{"--latency", "", "--latency -i 0.1", false, `^\d+ \d+ [\d.]+ \d+\n$`},
		{"--hotkeys", "", "--hotkeys", false, fmt.Sprintf(`Sampled %d keys`, keys+4)},
		{"INFO", "", "INFO keyspace", true, fmt.Sprintf(`db0:keys=%d`, keys+4)},
		{"--pipe at length", strings.Repeat("INCR piped\r\n", many) + "DEL piped\r\n", "--pipe", false, fmt.Sprintf(`errors: 0, replies: %d\n$`, many+1)},
		{"--rdb", "", "--rdb " + filepath.Join(dir, "all.rdb"), true, `Transfer finished with success`},
		{"--functions-rdb", "", "--functions-rdb " + filepath.Join(dir, "functions.rdb"), true, `Transfer finished with success`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.single && !s.single {
				t.Skip("for an upstream that is one server")
			}
			if out := tool(t, s, tt.input, "redis-cli", strings.Fields(tt.args)...); !regexp.MustCompile(tt.want).MatchString(out) {
				t.Errorf("redis-cli %s printed %.1500q, want %s", tt.args, out, tt.want)
			}
		})
	}
	if s.single {
		checkDump(t, filepath.Join(dir, "all.rdb"), keys+4)
	}
}

// checkDump has a server load a dump, which must hold so many keys.
func checkDump(t *testing.T, path string, keys int64) {
	t.Helper()
	s := redistest.Start(t, "--dir", filepath.Dir(path), "--dbfilename", filepath.Base(path))
	if n := s.Do(t, "DBSIZE").Int(); n != keys {
		t.Errorf("%s holds %d keys, want %d", path, n, keys)
	}
}

var benchmarkLine = regexp.MustCompile(`(?m)^"[^"]+","[1-9][0-9.]*"`)

func redisBenchmark(t *testing.T, s *site) {
	for _, args := range []string{"-t set,get,lpush,mset -P 8 -n 20000 -c 50", "-t set,get,incr,lpop,sadd,hset,spop,zadd,zpopmin,lrange_100 -n 5000 -r 1000", "-t get -n 5000 -3"} {
		out := tool(t, s, "", "redis-benchmark", append(strings.Fields(args), "--csv")...)
		tests := strings.Count(strings.Fields(args)[1], ",") + 1
		if n := len(benchmarkLine.FindAllString(out, -1)); n < tests || strings.Contains(out, "Error") {
			t.Errorf("redis-benchmark %s: %d results of %d\n%s", args, n, tests, out)
		}
	}
}
