package observe

import (
	"strings"
	"testing"
	"time"
)

func TestReport_WriteText(t *testing.T) {
	var b strings.Builder
	err := Report{On: true, KeyEvents: 1, Full: true, Unseen: Unseen{InMulti: 2}, Rows: []Row{
		{Keys: "lock:*", Mode: "report", Idiom: "set-nx-px + cad script", Looks: "redis-py", Clients: 12, Rate: 41.3, Held: Held{Count: 9, P50: 8, P99: 120, Most: 4100}, TTL: TTL{Least: 10000, Most: 10000}, Would: "adopted", Allowed: 5},
		{Keys: "cart:*", DB: 3, Mode: "on", Idiom: "setnx", Rate: 0.1, TTL: TTL{Endless: 4}, Would: "partly refused", Allowed: 3, Refused: 1, Why: "it has no end",
			Hazards: []Hazard{{Name: "no expiry", Means: "It never ends.", Count: 2, Key: "cart:1"}}},
	}}.WriteText(&b)
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(strings.FieldsFunc(b.String(), func(r rune) bool { return r == '\n' }), "\n")
	for strings.Contains(got, "   ") {
		got = strings.ReplaceAll(got, "   ", "  ")
	}
	const want = `KEYS  IDIOM  LOOKS LIKE  CLIENTS  ACQ/s  HELD p50/p99/max  TTL  WOULD BE  HAZARDS
lock:*  set-nx-px + cad script  redis-py  12  41  8ms/120ms/4.1s  10s  adopted  –
cart:* (db 3)  setnx  –  0  0.1  –  none  is partly refused (1 of 4): it has no end  no expiry (2, cart:1)
no expiry: It never ends.
2 commands were not seen through: 2 inside MULTI, 0 on connections with subscriptions and the like
1 subscriptions to __keyevent channels, which name no key: adopted keys have no such events
so many keys are followed that the oldest are forgotten`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestShortly(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0ms", 999 * time.Millisecond: "999ms", 4100 * time.Millisecond: "4.1s", 30 * time.Second: "30s", 10 * time.Minute: "10m", 24 * time.Hour: "24h",
	} {
		if got := shortly(d.Milliseconds()); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}
