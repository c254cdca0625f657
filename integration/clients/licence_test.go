package clients

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestLicence: each package has the licence beside it, that of the project.
func TestLicence(t *testing.T) {
	for _, language := range []string{"go", "python", "javascript", "java"} {
		wantLicence(t, filepath.Join("..", "..", "clients", language, "LICENSE"))
	}
}

// TestLicence_InPackages: what is built and installed of them has it too.
func TestLicence_InPackages(t *testing.T) {
	if os.Getenv(switchVariable) == "" {
		t.Skipf("fetches client libraries; set %s=1", switchVariable)
	}
	for _, p := range []struct {
		installed func() (string, error)
		file      string
		count     int
	}{
		{pythonPackage, "venv/lib/python*/site-packages/lockproxy-*.dist-info/licenses/LICENSE", 1},
		{javascriptPackage, "package/LICENSE", 1},
		{javaPackage, "*/target/classes/META-INF/LICENSE", len(javaModules)}, // what is in the jars
	} {
		dir, err := p.installed()
		if err != nil {
			t.Error(err)
			continue
		}
		files, err := filepath.Glob(filepath.Join(dir, p.file))
		if err != nil || len(files) != p.count {
			t.Errorf("%d files are %s: %v", len(files), p.file, err)
		}
		for _, file := range files {
			wantLicence(t, file)
		}
	}
}

func wantLicence(t *testing.T, file string) {
	t.Helper()
	want, err := os.ReadFile(filepath.Join("..", "..", "LICENSE"))
	if err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(file); err != nil || !bytes.Equal(text, want) {
		t.Errorf("%s is not the licence of the project: %v", file, err)
	}
}
