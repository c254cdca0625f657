package main

import (
	"testing"
	"time"
)

func TestParseStat(t *testing.T) {
	tests := []struct {
		stat string
		want float64
		ok   bool
	}{
		{"77 (redis-server) S 1 77 77 0 -1 4194560 900 0 0 0 150 25 0 0 20 0 5 0 1 1 1", 1.75, true},
		{"77 (a) b (c) S 1 77 77 0 -1 4194560 900 0 0 0 100 100 0 0 20 0 5 0 1 1 1", 2, true},
		{"77 (x) S 1 2 3", 0, false},
		{"", 0, false},
	}
	for _, tt := range tests {
		got, err := parseStat(tt.stat)
		if got != tt.want || (err == nil) != tt.ok {
			t.Errorf("%q: got %v, %v", tt.stat, got, err)
		}
	}
}

func TestParseRate(t *testing.T) {
	out := "\"test\",\"rps\",\"avg_latency_ms\"\n\"SET\",\"81967.21\",\"0.31\"\n"
	if rate, err := parseRate([]byte(out)); rate != 81967.21 || err != nil {
		t.Errorf("got %v, %v", rate, err)
	}
	if _, err := parseRate([]byte("WARNING\n")); err == nil {
		t.Error("no figure, no error")
	}
}

func TestQuantiles(t *testing.T) {
	var d []time.Duration
	for i := range 100 {
		d = append(d, time.Duration(100-i)*time.Millisecond)
	}
	if got := quantile(d, 0.5); got != 51*time.Millisecond {
		t.Errorf("p50 is %v", got)
	}
	if got := quantile(d, 0.99); got != 100*time.Millisecond {
		t.Errorf("p99 is %v", got)
	}
	if got := median([]float64{9, 1, 5}); got != 5 {
		t.Errorf("median is %v", got)
	}
}
