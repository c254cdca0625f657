// Package deploy is for the tests of the files in deploy/: they say only what Compose and
// Kubernetes understand, and settings that the program has. `make deploy-check` runs them.
package deploy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/loader"
	compose "github.com/compose-spec/compose-go/v2/types"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/util/yaml"
	sigsyaml "sigs.k8s.io/yaml"
)

// settingRow is a row of the table in docs/configuration.md, which a test of the program
// compares with what it takes.
var settingRow = regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\|")

func settings(t *testing.T) map[string]bool {
	t.Helper()
	doc, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]bool{"config": true}
	for _, m := range settingRow.FindAllStringSubmatch(string(doc), -1) {
		all[m[1]] = true
	}
	if len(all) < 30 {
		t.Fatalf("docs/configuration.md shows only %d settings", len(all))
	}
	return all
}

// wantVariable fails the test if a variable of the environment is meant for the program and
// is none of its settings.
func wantVariable(t *testing.T, known map[string]bool, name string) {
	t.Helper()
	if rest, ours := strings.CutPrefix(name, "LOCKPROXY_"); ours && !known[strings.ReplaceAll(strings.ToLower(rest), "_", "-")] {
		t.Errorf("%s is no setting", name)
	}
}

func wantFile(t *testing.T, known map[string]bool, text []byte) {
	t.Helper()
	var file map[string]any
	if err := sigsyaml.UnmarshalStrict(text, &file); err != nil {
		t.Fatal(err)
	}
	if len(file) == 0 {
		t.Error("a file of settings without any")
	}
	for name := range file {
		if !known[name] {
			t.Errorf("%s is no setting", name)
		}
	}
}

// manifests are the objects of a file, decoded strictly: an unknown or repeated field is
// an error.
func manifests(t *testing.T, path string) []runtime.Object {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1.AddToScheme, policyv1.AddToScheme, networkingv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	decoder := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme, json.SerializerOptions{Yaml: true, Strict: true})
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []runtime.Object
	for docs := yaml.NewDocumentDecoder(f); ; {
		buf := make([]byte, 1<<20)
		n, err := docs.Read(buf)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		object, _, err := decoder.Decode(buf[:n], nil, nil)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		all = append(all, object)
	}
}

// podOf is the template of an object that has pods.
func podOf(object runtime.Object) (template *corev1.PodTemplateSpec, selector map[string]string) {
	switch o := object.(type) {
	case *appsv1.Deployment:
		return &o.Spec.Template, o.Spec.Selector.MatchLabels
	case *appsv1.StatefulSet:
		return &o.Spec.Template, o.Spec.Selector.MatchLabels
	}
	return nil, nil
}

func TestKubernetes(t *testing.T) {
	files, err := filepath.Glob("../../deploy/kubernetes/*.yaml")
	if err != nil || len(files) < 3 {
		t.Fatal(files, err)
	}
	known := settings(t)
	for _, path := range files {
		t.Run(filepath.Base(path), func(t *testing.T) {
			for _, object := range manifests(t, path) {
				if config, ok := object.(*corev1.ConfigMap); ok && config.Data["lockproxy.yaml"] != "" {
					wantFile(t, known, []byte(config.Data["lockproxy.yaml"]))
				}
				if pod, selector := podOf(object); pod != nil {
					testPod(t, known, pod, selector)
				}
			}
		})
	}
}

// testPod looks for what the API server, or a cluster that enforces the restricted pod
// security standard, would refuse.
func testPod(t *testing.T, known map[string]bool, pod *corev1.PodTemplateSpec, selector map[string]string) {
	for key, value := range selector {
		if pod.Labels[key] != value {
			t.Errorf("the selector %s=%s does not select its own pods", key, value)
		}
	}
	volumes := map[string]bool{}
	for _, v := range pod.Spec.Volumes {
		volumes[v.Name] = true
	}
	if c := pod.Spec.SecurityContext; c == nil || c.RunAsNonRoot == nil || !*c.RunAsNonRoot || c.SeccompProfile == nil {
		t.Error("the pod may run as root, or without seccomp")
	}
	for _, c := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
		s := c.SecurityContext
		if s == nil || s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation || s.Capabilities == nil || len(s.Capabilities.Drop) != 1 || s.Capabilities.Drop[0] != "ALL" {
			t.Errorf("%s has more rights than it needs", c.Name)
		}
		for _, m := range c.VolumeMounts {
			if !volumes[m.Name] {
				t.Errorf("%s mounts %s, which is no volume", c.Name, m.Name)
			}
		}
		for _, e := range c.Env {
			wantVariable(t, known, e.Name)
		}
		ports := map[string]bool{}
		for _, p := range c.Ports {
			ports[p.Name] = true
		}
		for _, probe := range []*corev1.Probe{c.StartupProbe, c.ReadinessProbe, c.LivenessProbe} {
			if probe != nil && probe.HTTPGet != nil && !ports[probe.HTTPGet.Port.String()] {
				t.Errorf("%s is probed at %s, which is no port of it", c.Name, probe.HTTPGet.Port.String())
			}
		}
	}
}

// TestCompose has the file loaded, and held against the schema, as `docker compose config`
// does, with secrets that secrets.sh has made.
func TestCompose(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"compose.yaml", "secrets.sh"} {
		text, err := os.ReadFile("../../deploy/compose/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // the second time nothing changes
		if out, err := exec.Command(filepath.Join(dir, "secrets.sh")).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	path := filepath.Join(dir, "compose.yaml")
	project, err := loader.LoadWithContext(context.Background(), compose.ConfigDetails{
		WorkingDir: dir, ConfigFiles: []compose.ConfigFile{{Filename: path}}, Environment: compose.Mapping{},
	}, func(o *loader.Options) { o.SetProjectName("lockproxy", true) })
	if err != nil {
		t.Fatal(err)
	}
	known := settings(t)
	for name := range project.Services["proxy"].Environment {
		wantVariable(t, known, name)
	}
	for _, s := range project.Secrets {
		text, err := os.ReadFile(s.File)
		if err != nil || len(bytes.TrimSpace(text)) == 0 {
			t.Errorf("secret %s: %v", s.File, err)
		}
	}
	nodes, err := os.ReadFile(filepath.Join(dir, "secrets/lock-nodes"))
	if err != nil {
		t.Fatal(err)
	}
	urls := strings.Fields(string(nodes))
	if len(urls) != 5 {
		t.Errorf("%d lock nodes", len(urls))
	}
	for _, url := range urls {
		host := url[strings.LastIndex(url, "@")+1 : strings.LastIndex(url, ":")]
		s, ok := project.Services[host]
		if !ok || !strings.Contains(strings.Join(s.Command, " "), "--maxmemory-policy noeviction") {
			t.Errorf("%s is no service, or one that evicts", host)
		}
	}
}

// TestSystemd: the settings of the units and the file beside them are settings.
func TestSystemd(t *testing.T) {
	known := settings(t)
	file, err := os.ReadFile("../../deploy/systemd/lockproxy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	wantFile(t, known, file)
	unit, err := os.ReadFile("../../deploy/systemd/lockproxy.service")
	if err != nil {
		t.Fatal(err)
	}
	variables := regexp.MustCompile(`LOCKPROXY_[A-Z_]+`).FindAllString(string(unit), -1)
	if len(variables) < 2 {
		t.Errorf("the unit sets only %v", variables)
	}
	for _, name := range variables {
		wantVariable(t, known, name)
	}
	if bytes.Contains(unit, []byte("\nProcSubset=pid")) {
		t.Error("the unit hides net.core.somaxconn: Go takes it for 128")
	}
}

// TestACLs: every copy of the rights of a lock node's user is that of docs/configuration.md.
func TestACLs(t *testing.T) {
	rights := regexp.MustCompile(`~lockproxy:\* &lockproxy:\* (\+evalsha[^\n]*)`)
	doc, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	script, err := os.ReadFile("../../deploy/compose/secrets.sh")
	if err != nil {
		t.Fatal(err)
	}
	want, got := rights.FindSubmatch(doc), rights.FindSubmatch(script)
	if want == nil || got == nil || !bytes.Equal(want[1], got[1]) {
		t.Errorf("docs/configuration.md has %q, secrets.sh %q", want, got)
	}
}
