package clients

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"testing"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// javascriptPackage is a folder with our package in folder package, as it is packed, and its tests.
var javascriptPackage = sync.OnceValues(func() (string, error) {
	from, err := filepath.Abs(filepath.Join("..", "..", "clients", "javascript"))
	if err != nil {
		return "", err
	}
	dir, err := filepath.Abs(filepath.Join("..", "..", "bin", "clients", "javascript"))
	if err != nil {
		return "", err
	}
	to := filepath.Join(dir, "package")
	if err := errors.Join(os.RemoveAll(to), os.MkdirAll(to, 0o755)); err != nil {
		return "", err
	}
	for file, folder := range map[string]string{"package.json": dir, "package-lock.json": dir, "tsconfig.json": to} {
		b, err := os.ReadFile(filepath.Join(from, file))
		if err := errors.Join(err, os.WriteFile(filepath.Join(folder, file), b, 0o644)); err != nil {
			return "", err
		}
	}
	if err := os.CopyFS(filepath.Join(to, "test"), os.DirFS(filepath.Join(from, "test"))); err != nil {
		return "", err
	}
	return dir, errors.Join(
		install(dir, "npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"),
		install(from, "npm", "pack", "--silent", "--pack-destination", dir),
		install(dir, "sh", "-c", "tar xzf lockproxy-*.tgz && rm lockproxy-*.tgz"),
	)
})

// TestPackageJavaScript checks the types of clients/javascript, and runs its tests as it is packed, at two proxies that share lock
// nodes and one that speaks TLS and has databases.
func TestPackageJavaScript(t *testing.T) {
	if os.Getenv(switchVariable) == "" {
		t.Skipf("fetches client libraries; set %s=1", switchVariable)
	}
	dir, err := javascriptPackage()
	if err != nil {
		t.Fatal(err)
	}
	data, nodes, ca := redistest.Start(t), redistest.StartNodes(t, 3), redistest.NewAuthority(t)
	data.Do(t, "ACL", "SETUSER", "app", "on", ">pw", "~app:*", "+@all")
	cert, key := ca.Issue(t, "proxy")
	one, other := redistest.StartProxy(t, data, nodes), redistest.StartProxy(t, data, nodes)
	secure := redistest.StartProxy(t, data, nodes, "--tls-cert", cert, "--tls-key", key)
	var all sync.WaitGroup
	for _, part := range []struct {
		name    string
		command []string
		passed  string
	}{
		{"types", []string{"npm", "run", "--silent", "types"}, `^$`},
		{"tests", []string{"npm", "test", "--silent"}, `\n. pass [1-9]\d*\n. fail 0\n. cancelled 0\n. skipped 0\n`},
	} {
		all.Go(func() { // the tests wait more than they compute
			cmd, cancel := bounded(programTimeout, part.command[0], part.command[1:]...)
			defer cancel()
			cmd.Dir = filepath.Join(dir, "package")
			cmd.Env = append(os.Environ(), "PROXIES="+one.Addr()+" "+other.Addr(), "TLS_PROXY="+secure.Addr(), "TLS_CA="+ca.File)
			if out, err := cmd.CombinedOutput(); err != nil || !regexp.MustCompile(part.passed).Match(out) {
				t.Errorf("%s: %v\n%s", part.name, err, out)
			}
		})
	}
	all.Wait()
	nothingLeft(t, nodes)
}
