package clients

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// installTimeout bounds each command that fetches or compiles a library. With nothing
// cached the slowest takes half a minute, and more than two on a busy machine.
const installTimeout = 6 * time.Minute

// Each of these fetches libraries, once, and returns the folder to run programs in.
var (
	pythonPrograms = sync.OnceValues(installPython)
	nodePrograms   = sync.OnceValues(installNode)
	javaPrograms   = sync.OnceValues(installJava)
)

func installPython() (string, error) {
	return pythonEnvironment("python", "smoke.py")
}

// pythonEnvironment is a folder with these files and the packages of its requirements.txt.
func pythonEnvironment(name string, files ...string) (string, error) {
	dir, err := folder(name, append(files, "requirements.txt")...)
	if err != nil {
		return "", err
	}
	python := filepath.Join(dir, "venv", "bin", "python")
	if _, err := os.Stat(python); err != nil {
		if err := install(dir, "python3", "-m", "venv", "--clear", "venv"); err != nil {
			return "", err
		}
	}
	return dir, install(dir, python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", "requirements.txt")
}

func installNode() (string, error) {
	return nodeModules("node", "checks.mjs", "ioredis.mjs", "node-redis.mjs")
}

// nodeModules is a folder with these files and the packages of its package-lock.json.
func nodeModules(name string, files ...string) (string, error) {
	dir, err := folder(name, append(files, "package.json", "package-lock.json")...)
	if err != nil {
		return "", err
	}
	return dir, install(dir, "npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error")
}

func installJava() (string, error) {
	return javaClasses("java", "Checks.java", "JedisSmoke.java", "LettuceSmoke.java")
}

// javaClasses is a folder with the classes of these sources, and the libraries of its pom.xml.
func javaClasses(name string, sources ...string) (string, error) {
	dir, err := folder(name, append(sources, "pom.xml")...)
	if err != nil {
		return "", err
	}
	if err := install(dir, "mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=lib"); err != nil {
		return "", err
	}
	return dir, install(dir, "javac", append([]string{"-cp", "lib/*", "-d", "classes"}, sources...)...)
}

// folder is the folder of that name below bin/clients, with copies of these files
// from the folder of the same name here.
func folder(name string, files ...string) (string, error) {
	dir, err := filepath.Abs(filepath.Join("..", "..", "bin", "clients", name))
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	for _, f := range files {
		b, err := os.ReadFile(filepath.Join(name, f))
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(dir, f), b, 0o644); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// install runs a command in dir, and once more if it fails: registries have bad
// moments. An error tells what the command printed.
func install(dir, name string, args ...string) error {
	err := try(dir, name, args...)
	if err != nil {
		err = try(dir, name, args...)
	}
	return err
}

func try(dir, name string, args ...string) error {
	cmd, cancel := bounded(installTimeout, name, args...)
	defer cancel()
	cmd.Dir = dir
	start := time.Now()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("fetching a client library: %s: %w after %v\n%s", cmd, err, time.Since(start).Round(time.Second), out)
	}
	return nil
}

// bounded is a command that is killed after a time, with the processes it started.
func bounded(timeout time.Duration, name string, args ...string) (*exec.Cmd, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	return cmd, cancel
}
