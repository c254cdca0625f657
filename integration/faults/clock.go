package faults

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// errNoCompiler says that clocks cannot be shifted here.
var errNoCompiler = errors.New("no C compiler (cc) to build the library that shifts clocks")

// buildShim compiles testdata/clock.c into dir and returns the library's path.
func buildShim(dir string) (string, error) {
	cc, err := exec.LookPath("cc")
	if err != nil {
		return "", errNoCompiler
	}
	lib := filepath.Join(dir, "clock.so")
	out, err := exec.Command(cc, "-O2", "-Wall", "-shared", "-fPIC", "-o", lib, filepath.Join("testdata", "clock.c")).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("cc: %w\n%s", err, out)
	}
	return lib, nil
}

// A clock is the wall clock that one process sees, see testdata/clock.c.
type clock struct {
	env []string // of the process
	mem []byte
	by  time.Duration
}

// newClock is a clock that is as the kernel's and runs faster by ppm parts per million.
func newClock(dir, lib string, ppm int64) (*clock, error) {
	f, err := os.CreateTemp(dir, "shift-")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := f.Truncate(4096); err != nil {
		return nil, err
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	c := &clock{env: []string{"LD_PRELOAD=" + lib, "SHIFT_FILE=" + f.Name()}, mem: mem}
	binary.NativeEndian.PutUint64(mem[8:], uint64(ppm))
	binary.NativeEndian.PutUint64(mem[16:], uint64(time.Now().UnixNano()))
	return c, nil
}

// step moves the clock, back if by is negative. One goroutine at a time may.
func (c *clock) step(by time.Duration) {
	c.by += by
	binary.NativeEndian.PutUint64(c.mem, uint64(c.by))
}

func (c *clock) close() { _ = unix.Munmap(c.mem) }
