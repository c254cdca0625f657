package main

import (
	"math"
	"os"
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

// TestRunSeconds grows by what the process works.
func TestRunSeconds(t *testing.T) {
	before, err := runSeconds(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for until, _ := cpuSeconds(os.Getpid()); ; {
		if now, err := cpuSeconds(os.Getpid()); err != nil || now > until+0.1 {
			break
		}
	}
	after, err := runSeconds(os.Getpid())
	if err != nil || after-before < 0.05 || after-before > 60 {
		t.Errorf("%v s after 0.1 s of work, %v", after-before, err)
	}
}

func TestParseTail(t *testing.T) {
	out := "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\"p95_latency_ms\",\"p99_latency_ms\",\"max_latency_ms\"\n" +
		"\"SET\",\"81967.21\",\"0.315\",\"0.080\",\"0.311\",\"0.455\",\"0.719\",\"2.223\"\n"
	if tail, err := parseTail([]byte(out)); tail != 0.719 || err != nil {
		t.Errorf("got %v, %v", tail, err)
	}
	for _, none := range []string{"WARNING\n", "\"test\",\"rps\"\n\"SET\",\"1\"\n", ""} {
		if _, err := parseTail([]byte(none)); err == nil {
			t.Errorf("%q: no figure, no error", none)
		}
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

func TestJain(t *testing.T) {
	for _, tt := range []struct {
		shares []int
		want   float64
	}{{[]int{5, 5, 5, 5}, 1}, {[]int{9, 0, 0}, 1.0 / 3}, {[]int{1, 3}, 0.8}, {nil, 0}, {[]int{0}, 0}} {
		if got := jain(tt.shares); math.Abs(got-tt.want) > 1e-9 {
			t.Errorf("%v: %v, want %v", tt.shares, got, tt.want)
		}
	}
}

func TestParseCalls(t *testing.T) {
	info := "# Commandstats\r\ncmdstat_eval:calls=2,usec=9\r\ncmdstat_evalsha:calls=30,usec=9\r\ncmdstat_script|load:calls=4,usec=1\r\ncmdstat_hset:calls=99,usec=1\r\n"
	if got := parseCalls(info, []string{"evalsha", "script|load"}); got != 34 {
		t.Errorf("got %d", got)
	}
}

func TestParseMemory(t *testing.T) {
	now, most, err := parseMemory("Name:\tlockproxy\nVmHWM:\t  2000 kB\nVmRSS:\t  1000 kB\n")
	if now != 1024000 || most != 2048000 || err != nil {
		t.Errorf("got %d, %d, %v", now, most, err)
	}
	if _, _, err := parseMemory("Name:\tx\n"); err == nil {
		t.Error("no memory, no error")
	}
}

func TestChoose(t *testing.T) {
	var p plan
	if err := p.choose("burst,locks"); err != nil || len(p.only) != 2 {
		t.Errorf("got %v, %v", p.only, err)
	}
	if err := p.choose("burst,brust"); err == nil {
		t.Error("a part that is not there, no error")
	}
}

func TestSpread(t *testing.T) {
	if got := spread([]float64{1, 3, 4}, []float64{2, 2, 2}); got != "1.500 (0.50–2.00)" {
		t.Error(got)
	}
}

func TestConfidence(t *testing.T) {
	nine := []float64{1.9, 1.1, 1.8, 1.2, 1.7, 1.3, 1.6, 1.4, 1.5}
	if least, most := confidence(nine); least != 1.2 || most != 1.8 { // outside of it with 2*(1+9)/512
		t.Errorf("of nine: %v to %v", least, most)
	}
	if least, most := confidence(nine[:6]); least != 1.1 || most != 1.9 { // 2*1/64
		t.Errorf("of six: %v to %v", least, most)
	}
	if least, most := confidence(nine[:5]); !math.IsInf(least, -1) || !math.IsInf(most, 1) { // 2*1/32
		t.Errorf("of five: %v to %v", least, most)
	}
}

func TestVerdict(t *testing.T) {
	for _, tt := range []struct {
		ratios []float64
		want   string
	}{
		{[]float64{0.9, 1.04, 1.04, 1.1, 1.2, 1.2, 1.3, 1.3, 1.5}, isWorse}, // one round may say otherwise
		{[]float64{0.9, 1.02, 1.04, 1.1, 1.2, 1.2, 1.3, 1.3, 1.5}, "open"},
		{[]float64{0.5, 0.8, 0.8, 0.8, 0.9, 0.9, 0.9, 0.96, 2}, "better"},
		{[]float64{0.1, 0.98, 0.99, 1, 1, 1, 1.01, 1.02, 9}, "same"},
		{[]float64{1.5, 1.5, 1.5, 1.5, 1.5}, "open"},
	} {
		if got := verdict(tt.ratios); got != tt.want {
			t.Errorf("%v: %s, want %s", tt.ratios, got, tt.want)
		}
	}
}
