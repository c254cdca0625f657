package clients

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// javaModules are the folders of clients/java in which classes are.
var javaModules = []string{"lockproxy", "lockproxy-spring", "lockproxy-shedlock"}

// javaTests is the class path of the programs in the tests of the first module.
const javaTests = "lockproxy/target/classes:lockproxy/target/test-classes:lockproxy/target/dependency/*"

// javaPackage is a folder with clients/java, compiled and packed, and the libraries of each module in its target/dependency.
var javaPackage = sync.OnceValues(func() (string, error) {
	from := filepath.Join("..", "..", "clients", "java")
	dir, err := filepath.Abs(filepath.Join("..", "..", "bin", "clients", "java-package"))
	if err != nil {
		return "", err
	}
	if err := os.RemoveAll(dir); err != nil { // libraries of other versions would stay
		return "", err
	}
	files := []string{"pom.xml", "LICENSE"}
	for _, m := range javaModules {
		if err := os.CopyFS(filepath.Join(dir, m, "src"), os.DirFS(filepath.Join(from, m, "src"))); err != nil {
			return "", err
		}
		files = append(files, filepath.Join(m, "pom.xml"))
	}
	for _, name := range files {
		b, err := os.ReadFile(filepath.Join(from, name))
		if err := errors.Join(err, os.WriteFile(filepath.Join(dir, name), b, 0o644)); err != nil {
			return "", err
		}
	}
	return dir, install(dir, "mvn", "-q", "-B", "-DskipTests", "package", "dependency:copy-dependencies")
})

// TestPackageJava runs the tests of clients/java, at two proxies that share lock nodes and one that speaks TLS.
func TestPackageJava(t *testing.T) {
	if os.Getenv(switchVariable) == "" {
		t.Skipf("fetches client libraries; set %s=1", switchVariable)
	}
	dir, err := javaPackage()
	if err != nil {
		t.Fatal(err)
	}
	data, nodes, ca := redistest.Start(t), redistest.StartNodes(t, 3), redistest.NewAuthority(t)
	data.Do(t, "ACL", "SETUSER", "app", "on", ">pw", "~app:*", "+@all")
	cert, key := ca.Issue(t, "proxy")
	one, other := redistest.StartProxy(t, data, nodes), redistest.StartProxy(t, data, nodes)
	secure := redistest.StartProxy(t, data, nodes, "--tls-cert", cert, "--tls-key", key)
	cmd, cancel := bounded(suiteTimeout, "mvn", "-B", "package")
	defer cancel()
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PROXIES="+one.Addr()+" "+other.Addr(), "TLS_PROXY="+secure.Addr(), "TLS_CA="+ca.File)
	passed := regexp.MustCompile(`\nTests run: [1-9]\d*, Failures: 0, Errors: 0, Skipped: 0\n`)
	out, err := cmd.CombinedOutput()
	out = regexp.MustCompile(`\x1b\[[\d;]*m|\[\w+\] `).ReplaceAll(out, nil)
	if n := len(passed.FindAll(out, -1)); err != nil || n != len(javaModules) {
		t.Errorf("the tests of %d modules of %d passed: %v\n%s", n, len(javaModules), err, out)
	}
	nothingLeft(t, nodes)
}

// TestPackageJava_Readme runs what clients/java/README.md shows of Jedis, twice, as a lock that was not given back would not be granted
// again, and compiles the rest.
func TestPackageJava_Readme(t *testing.T) {
	if os.Getenv(switchVariable) == "" {
		t.Skipf("fetches client libraries; set %s=1", switchVariable)
	}
	dir, err := javaPackage()
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile(filepath.Join("..", "..", "clients", "java", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	shown := regexp.MustCompile("(?s)```java\n(.*?)```").FindAllStringSubmatch(string(readme), -1)
	if len(shown) != 5 {
		t.Fatalf("the README of the package shows %d pieces of Java, want 5", len(shown))
	}
	proxy := redistest.StartProxy(t, redistest.Start(t), redistest.StartNodes(t, 3))
	_, port, _ := strings.Cut(proxy.Addr(), ":")
	run := func(name, classpath, code string, flags ...string) string {
		file := filepath.Join(t.TempDir(), "Readme.java")
		if err := os.WriteFile(file, []byte(strings.ReplaceAll(code, "6380", port)), 0o644); err != nil {
			t.Fatal(err)
		}
		cmd, cancel := bounded(suiteTimeout, name, append(flags, "-cp", classpath, file)...)
		defer cancel()
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%s\n%s: %v\n%s", code, name, err, out)
		}
		return string(out)
	}
	const imports = "import io.github.lockproxy.*; import java.time.*; import java.util.*; import redis.clients.jedis.JedisPooled;\n"
	jedis := imports + "class Readme { public static void main(String[] args) throws InterruptedException {" + shown[0][1] + shown[2][1] + "} }"
	printed := regexp.MustCompile(`mine, fence \d{16}\nmine, fences \d{16} \d{16}\n$`)
	for range 2 {
		if out := run("java", "lockproxy/target/classes:lockproxy/target/dependency/*", jedis); !printed.MatchString(out) {
			t.Errorf("it prints %s", out)
		}
	}
	for _, other := range []struct{ module, code string }{
		{"lockproxy", "import io.lettuce.core.*; class Readme { void lettuce() {" + shown[1][1] + "} }"},
		{"lockproxy-spring", "import io.github.lockproxy.spring.*; import org.springframework.context.annotation.Bean; import org.springframework.integration.support.locks.LockRegistry; class Readme {" + shown[3][1] + "}"},
		{"lockproxy-shedlock", "import io.github.lockproxy.shedlock.*; import net.javacrumbs.shedlock.core.LockProvider; @interface Bean {} class Readme {" + shown[4][1] + "}"},
	} {
		classpath := "lockproxy/target/classes:lockproxy/target/dependency/*:" + other.module + "/target/classes:" + other.module + "/target/dependency/*"
		run("javac", classpath, imports+other.code, "-d", filepath.Join(t.TempDir(), other.module))
	}
}
