package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// A rival is another proxy in front of the same upstream, as Debian packages it, or
// built from the source that the environment names; one that is not there is left out
// of the table. None has locks; haproxy relays TCP and knows no Redis.
type rival struct {
	name   string
	binary string
	config string // the listening address and the upstream's go in
	args   func(config string) []string
	source string // the variable that names the directory of its source; may be empty

	path string // of the binary
	addr string
	cmd  *exec.Cmd
}

func rivals() []*rival {
	return []*rival{
		{name: "twemproxy", binary: "nutcracker",
			config: "bench:\n  listen: %s\n  redis: true\n  servers:\n   - %s:1\n",
			args: func(config string) []string {
				_, stats, _ := net.SplitHostPort(freeAddr())
				return []string{"-c", config, "-m", "16384", "-s", stats}
			}},
		{name: "haproxy (TCP)", binary: "haproxy",
			config: "global\n  nbthread 1\n  maxconn 4000\ndefaults\n  mode tcp\n  timeout connect 1s\n  timeout client 60s\n  timeout server 60s\nlisten bench\n  bind %s\n  server upstream %s\n",
			args:   func(config string) []string { return []string{"-db", "-f", config} }},
		{name: "predixy", binary: "predixy", source: "PREDIXY",
			config: "Bind %s\nWorkerThreads 1\nLogInfoSample 100000\nAuthority {\n Auth {\n  Mode write\n }\n}\nStandaloneServerPool {\n RefreshMethod fixed\n Group upstream {\n  + %s\n }\n}\n",
			args:   func(config string) []string { return []string{config} }},
	}
}

// find sets where the binary is, after building it in dir from source. It is empty if the rival is not there.
func (r *rival) find(dir string) error {
	source := os.Getenv(r.source)
	if source == "" {
		r.path, _ = exec.LookPath(r.binary)
		return nil
	}
	dir = filepath.Join(dir, r.binary)
	if err := os.CopyFS(dir, os.DirFS(source)); err != nil {
		return err
	}
	// Its headers rely on others that newer compilers do not include by themselves.
	built := exec.Command("make", "-C", dir, "CXX=g++ -include cstdint -include cstring -include ctime -include string -include iostream")
	if out, err := built.CombinedOutput(); err != nil {
		return fmt.Errorf("make: %w\n%s", err, out)
	}
	r.path = filepath.Join(dir, "src", r.binary)
	return nil
}

// freeAddr is an address for what nobody asks; if none is free the rival says so.
func freeAddr() string {
	addr, _ := redistest.FreeAddr()
	return addr
}

// startRivals starts those that are installed, in dir. stop ends exactly those.
func startRivals(dir, upstream string) (started []*rival, stop func(), err error) {
	stop = func() {
		for _, r := range started {
			r.cmd.Process.Kill()
			r.cmd.Wait()
		}
	}
	for _, r := range rivals() {
		if err := r.find(dir); err != nil {
			stop()
			return nil, nil, fmt.Errorf("%s: %w", r.name, err)
		}
		if r.path == "" {
			continue
		}
		if err := r.start(dir, upstream); err != nil {
			stop()
			return nil, nil, fmt.Errorf("%s: %w", r.name, err)
		}
		started = append(started, r)
	}
	return started, stop, nil
}

func (r *rival) start(dir, upstream string) (err error) {
	if r.addr, err = redistest.FreeAddr(); err != nil {
		return err
	}
	file := filepath.Join(dir, r.binary+".conf")
	if err := os.WriteFile(file, fmt.Appendf(nil, r.config, r.addr, upstream), 0o600); err != nil {
		return err
	}
	r.cmd = exec.Command(r.path, r.args(file)...)
	r.cmd.Dir = dir
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := r.cmd.Start(); err != nil {
		return err
	}
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		nc, err := net.Dial("tcp", r.addr)
		if err == nil {
			return nc.Close()
		}
		if time.Now().After(end) {
			r.cmd.Process.Kill()
			r.cmd.Wait()
			return err
		}
	}
}
