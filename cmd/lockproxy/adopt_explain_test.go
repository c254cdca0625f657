package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/cmd/lockproxy/exit"
	"github.com/lockproxy/lockproxy/commands/adopt/explain"
)

const (
	// The scripts are our own wording.
	releaseOwn   = "if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('publish', 'freed', KEYS[1]) return redis.call('del', KEYS[1]) end return 0"
	releaseAny   = "return redis.call('del', KEYS[1])"
	stealing     = "return redis.call('set', KEYS[1], ARGV[1], 'px', 30000)"
	unsupported  = "return redis.call('set', KEYS[1], cjson.encode(ARGV))"
	ofLater      = "return redis.call('delex', KEYS[1], 'IFEQ', ARGV[1])"
	extendAll    = "local t = {} for i, k in ipairs(KEYS) do t[i] = 0 if redis.call('hget', k, ARGV[i + 1]) then t[i] = redis.call('pexpire', k, ARGV[1]) end end return t"
	fenced       = "if redis.call('exists', KEYS[1]) == 1 and redis.call('hexists', KEYS[1], ARGV[2]) == 0 then return {redis.call('pttl', KEYS[1]), -1} end redis.call('hincrby', KEYS[1], ARGV[2], 1) redis.call('pexpire', KEYS[1], ARGV[1]) return {-1, redis.call('incr', KEYS[2])}"
	takeForever  = "return redis.call('setnx', KEYS[1], ARGV[1])"
	always       = "if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('del', KEYS[1]) end return 'OK'"
	ofAnArgument = "if redis.call('get', ARGV[1]) == ARGV[2] then return redis.call('del', ARGV[1]) end return 0"
)

// explained runs adopt explain with a script in standard input, and returns what it prints.
func explained(t *testing.T, script string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	p := program{env: func(string) (string, bool) { return "", false }, stdin: strings.NewReader(script), stdout: &out, stderr: &errs}
	code = p.run(context.Background(), append([]string{"lockproxy", "adopt", "explain"}, args...))
	return code, out.String(), errs.String()
}

func TestExplain_Script(t *testing.T) {
	file := filepath.Join(t.TempDir(), "release.lua")
	if err := os.WriteFile(file, []byte(releaseOwn), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, script string
		args         []string
		code         int
		stdout       []string
	}{
		{"a file", "", []string{file}, exit.OK, []string{"mine               release, PUBLISH freed lock  :1", "other              nothing", ":0", "class RELEASE, adopted\n"}},
		{"standard input", releaseOwn, []string{"-"}, exit.OK, []string{"class RELEASE, adopted\n"}},
		{"keys and arguments", releaseOwn, []string{"-", "job", "other", ",", "token", "9"}, exit.OK, []string{"PUBLISH freed job"}},
		{"keys alone", releaseAny, []string{"-", "job"}, exitWarnings, []string{"class FORCE-RELEASE, adopted, but not with as=strict: it does not compare the value\n"}},
		{"a lock among the arguments", ofAnArgument, []string{"--lock", "job", "-", ",", "job", "token"}, exit.OK, []string{"class RELEASE, adopted\n"}},
		{"a command that the upstream has", ofLater, []string{"--upstream", "redis 8.4", "-"}, exit.OK, []string{"class RELEASE, adopted\n"}},
		{"one that it has not", ofLater, []string{"-"}, exitErrors, []string{"be refused: DELEX of a lock"}},
		{"refused for its class", stealing, []string{"-"}, exitErrors, []string{"replace for 30s", "class OVERWRITE, adopted, but only with as=full: it replaces another's lock\n"}},
		{"refused", unsupported, []string{"-"}, exitErrors, []string{"be refused: ", "cjson", "not adopted: what it does to a lock is not clear\n"}},
		{"several locks", extendAll, []string{"-", "a", "b", ",", "5000", "me", "you"}, exit.OK, []string{"mine twice   renew for 5s", "class HASH-EXTEND, adopted\n"}},
		{"a fence beside it", fenced, []string{"-", "lock:a", "fence:{lock:a}", ",", "5000", "me"}, exitErrors, []string{"INCR beside the lock"}},
		{"a fence that the pattern names", fenced, []string{"--adopt", "lock:* fence-key=fence:", "-", "lock:a", "fence:{lock:a}", ",", "5000", "me"}, exit.OK, []string{"absent       enter for 5s  *2 :-1 the fence\n", "class REENTRANT-ACQ, adopted\n"}},
		{"a fence that it does not", fenced, []string{"--adopt", "lock:* fence-key=token:", "-", "lock:a", "fence:{lock:a}", ",", "5000", "me"}, exitErrors, []string{"INCR beside the lock"}},
		{"the fence of another lock", fenced, []string{"--adopt", "lock:* fence-key=fence:", "-", "lock:a", "fence:{lock:b}", ",", "5000", "me"}, exitErrors, []string{"INCR of the fence of another lock"}},
		{"the lock is what the pattern matches", ofAnArgument, []string{"--adopt", "job*", "-", "x", ",", "job", "token"}, exit.OK, []string{"class RELEASE, adopted\n"}},
		{"as=strict", releaseAny, []string{"--adopt", "l* as=strict", "-"}, exitErrors, []string{"class FORCE-RELEASE, not adopted: FORCE-RELEASE does not compare the value\n"}},
		{"as=full", stealing, []string{"--adopt", "l* as=full", "-"}, exit.OK, []string{"class OVERWRITE, adopted\n"}},
		{"as by itself is usual", stealing, []string{"--adopt", "l*", "-"}, exitErrors, []string{"not adopted: OVERWRITE does not compare the value: set as=full\n"}},
		{"no-expiry by itself is keep", takeForever, []string{"--adopt", "l*", "-"}, exit.OK, []string{"take without an end"}},
		{"no-expiry=lease", takeForever, []string{"--adopt", "l* no-expiry=lease:10s", "-"}, exit.OK, []string{"take for 10s"}},
		{"no-expiry=refuse", takeForever, []string{"--adopt", "l* no-expiry=refuse", "-"}, exitErrors, []string{"absent             be refused: it has no end", "class ACQ, not adopted: it has no end"}},
		{"mode=both, and its reply tells", releaseOwn, []string{"--adopt", "l* mode=both", "-"}, exit.OK, []string{"class RELEASE, adopted\n"}},
		{"mode=both, and its reply does not", always, []string{"--adopt", "l* mode=both", "-"}, exitErrors, []string{"class RELEASE, not adopted: its reply does not tell whether it has changed the lock, which mode=both must know\n"}},
		{"any mode but both", always, []string{"--adopt", "l* mode=observe", "-"}, exit.OK, []string{"class RELEASE, adopted\n"}},
		{"no Lua", "if", []string{"-"}, exitErrors, []string{"SHA-1 ", "not adopted: "}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			code, stdout, stderr := explained(t, tt.script, tt.args...)
			if code != tt.code || stderr != "" {
				t.Errorf("exit code %d, want %d; %s", code, tt.code, stderr)
			}
			for _, want := range tt.stdout {
				if !strings.Contains(stdout, want) {
					t.Errorf("no %q in\n%s", want, stdout)
				}
			}
		})
	}
}

func TestExplain_JSON(t *testing.T) {
	for script, want := range map[string]explain.Explanation{
		releaseOwn: {Class: "RELEASE", Adopted: explain.Yes},
		releaseAny: {Class: "FORCE-RELEASE", Adopted: explain.Usually, Why: "it does not compare the value"},
		stealing:   {Class: "OVERWRITE", Adopted: explain.Fully, Why: "it replaces another's lock"},
	} {
		_, stdout, _ := explained(t, script, "--format", "json", "-", "job", ",", "token")
		var got explain.Explanation
		dec := json.NewDecoder(strings.NewReader(stdout))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&got); err != nil {
			t.Fatalf("%v in %s", err, stdout)
		}
		if got.Class != want.Class || got.Adopted != want.Adopted || got.Why != want.Why || got.Lock != "job" || len(got.SHA1) != 40 || len(got.Rows) != 5 {
			t.Errorf("%s: %+v", script, got)
		}
		if script == stealing && (got.Rows[0].Does != "take" || got.Rows[0].TTL != 30000 || got.Rows[0].Reply != "+OK") {
			t.Errorf("%s: %+v", script, got.Rows[0])
		}
		if script == releaseOwn && (got.Rows[1].State != "mine" || got.Rows[1].Does != "release" || len(got.Rows[1].Signals) != 1 || got.Rows[1].Signals[0] != "PUBLISH freed job") {
			t.Errorf("%s: %+v", script, got.Rows[1])
		}
	}
}

func TestExplain_Misuse(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{nil, "takes the file of a script"}, {[]string{"/no/such/file.lua"}, "no such file"}, {[]string{"--format", "yaml", "-"}, `"yaml" is not one of text, json`},
		{[]string{"-", "--format", "json"}, "--format stands behind the file"}, {[]string{"-", "job", "--lock=job"}, "--lock stands behind the file"},
		{[]string{"--lock", "x", "-", "job"}, `"x" is neither a key nor an argument`}, {[]string{"-", ",", "token"}, "no key is named"}, {[]string{"--colour", "-"}, "colour"},
		{[]string{"--adopt", "lock:* fence-kay=x as=y", "-"}, "fence-kay=x: is no word of a pattern"}, {[]string{"--adopt", "lock:*", "-", "job"}, `adopt: "lock:*" matches no key and no argument`},
		{[]string{"--adopt", "lock:*", "--lock", "job", "-", "job", "lock:a"}, `lock: "job" does not match "lock:*"`}, {[]string{"-", "job", "--adopt=j*"}, "--adopt stands behind the file"},
		{[]string{"--upstream", "8.4", "-"}, `upstream: "8.4" is not such as`}, {[]string{"-", "--upstream", "redis 8"}, "--upstream stands behind the file"},
	} {
		if code, stdout, stderr := explained(t, releaseOwn, tt.args...); code != exit.Misuse || stdout != "" || !strings.Contains(stderr, tt.want) {
			t.Errorf("%v: exit code %d, %s%s", tt.args, code, stdout, stderr)
		}
	}
	if code, _, stderr := explained(t, strings.Repeat(" ", maxScriptFile+1), "-"); code != exit.Misuse || !strings.Contains(stderr, "longer than") {
		t.Errorf("a long file: exit code %d, %s", code, stderr)
	}
	if code, _, stderr := execute(t, nil, "adopt", "check", "--to", "on"); code != exit.Misuse || !strings.Contains(stderr, "adopt check [--watch 1m] [--to on] redis://") {
		t.Errorf("adopt check without a URL: code %d, %q", code, stderr)
	}
	if code, _, stderr := execute(t, nil, "adopt"); code != exit.Usage || !strings.Contains(stderr, "adopt explain FILE.lua") {
		t.Errorf("adopt alone: exit code %d, %s", code, stderr)
	}
}
