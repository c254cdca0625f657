package clients

import (
	"fmt"
	"net"
	"os/exec"
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
	cmd := exec.Command(name, append([]string{"-h", host, "-p", port}, args...)...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	return string(out)
}

func TestRedisCLI(t *testing.T) { everywhere(t, redisCLI) }

func redisCLI(t *testing.T, s *site) {
	var mass strings.Builder
	for i := range 2000 {
		mass.WriteString(redistest.Command("SET", fmt.Sprint("mass:", i), strings.Repeat("x", i%50)))
	}
	for _, tt := range []struct {
		name, input, args, want string // want is a regular expression of the output
	}{
		{"typed", "SET a 1\nINCR a\nGET none\nLPUSH a x\nMULTI\nINCR a\nEXEC\nSELECT 3\nGET a\n", "", `^OK\n2\n\nWRONGTYPE [^\n]*\n\nOK\nQUEUED\n3\nOK\n\n$`},
		{"typed locks", "LOCK job 30s OWNER me\nLOCK job 30s OWNER you\nUNLOCK job me\nRENEW job 30s me\n", "--no-raw", `^1\) \(integer\) \d+\n2\) "me"\n3\) \(integer\) \d+\n4\) \(integer\) 1\n\(nil\)\n\(integer\) 1\n\(error\) LOCKLOST [^\n]*\n$`},
		{"RESP3", "HSET h f v\nHGETALL h\nLOCK h 30s OWNER me\nLOCK h 30s\n", "-3 --no-raw", `\n1# "f" => "v"\n1\) \(integer\) \d+\n(.*\n){3}\(nil\)\n$`},
		{"--pipe", mass.String(), "--pipe", `errors: 0, replies: 2000\n$`},
		{"--scan", "", "--scan --pattern mass:19*", `^(mass:19\d*\n){111}$`},
		{"--bigkeys", "", "--bigkeys", `Sampled 2002 keys`},
		{"--memkeys", "", "--memkeys", `Sampled 2002 keys`},
		{"eval", "", "EVAL return{KEYS[1],ARGV[1]} 1 k v", `^k\nv\n$`},
		{"user", "", "--user app --pass pw --no-auth-warning ACL WHOAMI", `^app\n$`},
		{"database", "", "-n 5 CLIENT GETNAME", `^\n$`},
		{"repeated", "", "-r 3 INCR repeated", `^1\n2\n3\n$`},
		{"--stat once", "", "INFO keyspace", `db0:keys=2003`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if out := tool(t, s, tt.input, "redis-cli", strings.Fields(tt.args)...); !regexp.MustCompile(tt.want).MatchString(out) {
				t.Errorf("redis-cli %s printed %.1500q, want %s", tt.args, out, tt.want)
			}
		})
	}
}

var benchmarkLine = regexp.MustCompile(`(?m)^"[^"]+","[1-9][0-9.]*"`)

func TestRedisBenchmark(t *testing.T) { everywhere(t, redisBenchmark) }

func redisBenchmark(t *testing.T, s *site) {
	for _, args := range []string{"-t set,get,lpush,mset -P 8 -n 20000 -c 50", "-t set,get,incr,lpop,sadd,hset,spop,zadd,zpopmin,lrange_100 -n 5000 -r 1000", "-t get -n 5000 -3"} {
		out := tool(t, s, "", "redis-benchmark", append(strings.Fields(args), "--csv")...)
		tests := strings.Count(strings.Fields(args)[1], ",") + 1
		if n := len(benchmarkLine.FindAllString(out, -1)); n < tests || strings.Contains(out, "Error") {
			t.Errorf("redis-benchmark %s: %d results of %d\n%s", args, n, tests, out)
		}
	}
}
