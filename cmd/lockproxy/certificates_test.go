package main

import (
	"crypto/x509"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockproxy/lockproxy/backends"
	"github.com/lockproxy/lockproxy/integration/redistest"
)

const day = 24 * time.Hour

// The log has each change at once, and the same warning once a day.
func TestCertificateWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca, began := redistest.NewAuthority(t), time.Now()
		own := func(setting string, from, to time.Duration) ownCertificate {
			pair, err := backends.ReadKeyPair(ca.IssueFor(t, setting, began.Add(from), began.Add(to)))
			if err != nil {
				t.Fatal(err)
			}
			return ownCertificate{setting, []string{"clients", "operators"}, func() *x509.Certificate { return pair.Leaf(slog.New(slog.DiscardHandler)) }}
		}
		var log buffer
		stop := watchCertificates(t.Context(), []ownCertificate{own("old", -89*day, 36*time.Hour), own("new", -10*day, 80*day), own("short", -time.Hour, 23*time.Hour)},
			slog.New(slog.NewTextHandler(&log, nil)))
		said := func() string {
			synctest.Wait()
			times := map[string]int{}
			for line := range strings.Lines(log.String()) {
				_, about, _ := strings.Cut(line, "setting=")
				setting, _, _ := strings.Cut(about, " ")
				times[setting+map[bool]string{true: " soon", false: " ended"}[strings.Contains(line, `level=WARN msg="certificate ends soon`)]]++
			}
			log.Reset()
			return fmt.Sprint(times)
		}
		for _, step := range []struct {
			after time.Duration
			want  string
		}{
			{0, "map[old soon:1]"},
			{16 * time.Hour, "map[]"},
			{2 * time.Hour, "map[short soon:1]"}, // less than a quarter is left
			{5*time.Hour - time.Minute, "map[]"},
			{90 * time.Minute, "map[old soon:1 short ended:1]"},
			{10 * time.Hour, "map[]"},
			{3 * time.Hour, "map[old ended:1]"},
			{10 * day, "map[old ended:10 short ended:10]"},
			{56 * day, "map[new soon:2 old ended:56 short ended:56]"},
		} {
			time.Sleep(step.after)
			if got := said(); got != step.want {
				t.Errorf("%v later: %q, want %q", step.after, got, step.want)
			}
		}
		ca.IssueFor(t, "old", began, began.Add(1000*day))
		time.Sleep(day)
		if got := said(); strings.Contains(got, "old") {
			t.Errorf("after it was renewed: %q", got)
		}
		stop()
	})
}

func TestOwnCertificates(t *testing.T) {
	ca := redistest.NewAuthority(t)
	cert, key := ca.Issue(t, "a")
	other, otherKey := ca.Issue(t, "b")
	for _, tt := range []struct {
		name string
		said config
		want string
	}{
		{"none", fromFlagsOf(), ""},
		{"an authority alone", fromFlagsOf("tls-ca", ca.File), ""},
		{"for clients", fromFlagsOf("tls-cert", cert, "tls-key", key), "tls-cert a for clients, "},
		{"all", fromFlagsOf("tls-cert", cert, "tls-key", key, "tls-server-cert", other, "tls-server-key", otherKey, "admin", "127.0.0.1:0", "admin-tls", "true"),
			"tls-cert a for clients operators, tls-server-cert b for servers, "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.said["upstream"] = given{values: []string{"rediss://u:1"}}
			o, bad := validated(tt.said, nil)
			if len(bad) > 0 {
				t.Fatal(bad)
			}
			got := ""
			for _, c := range o.ownCertificates(nil) {
				got += c.setting + " " + c.leaf().Subject.CommonName + " for " + strings.Join(c.uses, " ") + ", "
			}
			if got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}
