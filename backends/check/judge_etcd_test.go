package check

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// TestJudgeMembers: what no etcd of a test shows, or not for long.
func TestJudgeMembers(t *testing.T) {
	tests := []struct {
		name   string
		change func(all []Member)
		want   string
	}{
		{"sound", func([]Member) {}, ""},
		{"learner", func(all []Member) { all[1].Learner = true }, "error learner"},
		{"corrupt", func(all []Member) { all[1].Alarms = []string{"memberID:1 alarm:CORRUPT"} }, "error alarm"},
		{"nearly full", func(all []Member) { all[1].Size, all[1].Quota = 85, 100 }, "warning space"},
		{"two leaders", func(all []Member) { all[2].Leader = "b" }, "warning leader"},
		{"slow", func(all []Member) { all[2].RoundTrips[0] = 400 * time.Millisecond }, "warning latency"},
		{"old", func(all []Member) { all[0].Version = "3.3.27" }, "error version"},
		{"newer", func(all []Member) { all[0].Version = "4.0.1" }, ""},
		{"refuses", func(all []Member) { all[0].Refused = errors.New("no") }, "error refuses-writes"},
		{"damaged", func(all []Member) { all[0].Damaged = errors.New("no") }, "error damaged"},
		{"no TLS", func(all []Member) { all[0].Secure = false }, "warning no-tls"},
		{"no user", func(all []Member) { all[0].Credential = false }, "warning no-password"},
		{"neither", func(all []Member) { all[0].Secure, all[0].Credential = false, false }, "note no-tls, warning no-password"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var all []Member
			for _, id := range []string{"a", "b", "c"} {
				all = append(all, Member{
					Address: id + ".example:2379", ID: id, Cluster: "x", Leader: "a", Version: "3.5.9", Secure: true, Credential: true,
					RoundTrips: []time.Duration{time.Millisecond},
				})
			}
			tt.change(all)
			var got []string
			for _, f := range judgeMembers(all, &Options{}) {
				got = append(got, string(f.Severity)+" "+f.ID)
			}
			if text := strings.Join(got, ", "); text != tt.want {
				t.Errorf("%s, want %s", text, tt.want)
			}
		})
	}
}
