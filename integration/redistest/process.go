package redistest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// startTimeout bounds how long a child may take until it serves.
const startTimeout = time.Minute

// A process is one child that listens on a fixed port of 127.0.0.1 and can be
// killed, stopped, continued and started again there. Its methods may be called
// from any goroutine, one at a time for those that end or start it.
type process struct {
	path string
	args []string
	env  []string // on top of this process's
	dir  string
	addr string
	pass []*os.File // what the child inherits from descriptor 3 on
	out  output

	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{} // closed when cmd has been waited for
}

// start runs the child and returns when ready gives no error, or with an error when
// the child has ended or startTimeout has passed.
func (p *process) start(ready func() error) error {
	cmd := exec.Command(p.path, p.args...)
	cmd.Dir = p.dir
	cmd.ExtraFiles = p.pass
	if p.env != nil {
		cmd.Env = append(os.Environ(), p.env...)
	}
	cmd.Stdout, cmd.Stderr = &p.out, &p.out
	// Go retires no idle threads, so the thread that forks lives as long as the test.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = cmd.Wait() // how it ended is in cmd.ProcessState
	}()
	p.mu.Lock()
	p.cmd, p.done = cmd, done
	p.mu.Unlock()
	if err := p.await(done, ready); err != nil {
		p.Kill()
		return fmt.Errorf("%s: %w\n%s", p.path, err, p.Log())
	}
	return nil
}

func (p *process) await(done <-chan struct{}, ready func() error) error {
	deadline := time.Now().Add(startTimeout)
	for {
		err := ready()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not ready: %w", err)
		}
		select {
		case <-done:
			return errors.New("ended at once")
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// Addr is the host:port the child serves on, also while it is down.
func (p *process) Addr() string { return p.addr }

// URL is Addr as a Redis URL.
func (p *process) URL() string { return "redis://" + p.addr }

// PID is the child's process id.
func (p *process) PID() int {
	cmd, _ := p.current()
	return cmd.Process.Pid
}

// Log is what the child has written to its output so far.
func (p *process) Log() string { return p.out.String() }

// Kill ends the child as kill -9 does and returns when it is gone.
func (p *process) Kill() { p.end(syscall.SIGKILL) }

// Pause stops the child with SIGSTOP: the kernel goes on accepting for it.
func (p *process) Pause() { p.signal(syscall.SIGSTOP) }

// Resume continues a paused child.
func (p *process) Resume() { p.signal(syscall.SIGCONT) }

// Terminate sends SIGTERM and reports whether the child ended within d; the exit
// status is nil if it was 0.
func (p *process) Terminate(d time.Duration) (ended bool, status error) {
	cmd, done := p.current()
	p.signal(syscall.SIGTERM)
	select {
	case <-done:
	case <-time.After(d):
		return false, nil
	}
	if cmd.ProcessState.Success() {
		return true, nil
	}
	return true, errors.New(cmd.ProcessState.String())
}

// Running reports whether the child has not ended.
func (p *process) Running() bool {
	_, done := p.current()
	select {
	case <-done:
		return false
	default:
		return true
	}
}

func (p *process) end(sig syscall.Signal) {
	_, done := p.current()
	if done == nil {
		return
	}
	p.signal(sig)
	<-done
}

// signal does nothing when the child has ended: its id is only freed by Wait,
// after which os.Process refuses.
func (p *process) signal(sig syscall.Signal) {
	if cmd, _ := p.current(); cmd != nil {
		_ = cmd.Process.Signal(sig)
	}
}

func (p *process) current() (*exec.Cmd, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd, p.done
}

// An output keeps the last of what a child wrote.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// maxOutput is how many bytes of a child's output are kept.
const maxOutput = 256 << 10

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.buf.Len()+len(p) > maxOutput {
		o.buf.Next(min(o.buf.Len(), maxOutput/2))
	}
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}
