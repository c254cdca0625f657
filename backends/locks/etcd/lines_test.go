package etcd

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestNoteStatus_FlappingMember: a member that goes and comes every second for ten minutes has a few lines at once, one a minute, and a
// last one.
func TestNoteStatus_FlappingMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		s, err := New(Options{Target: Target{Members: []string{"127.0.0.1:1"}}, Log: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		up := statusResponse{Leader: "1"}
		for range 300 {
			s.noteStatus(0, &up, nil, 0)
			time.Sleep(time.Second)
			s.noteStatus(0, &statusResponse{}, errors.New("no answer"), 0)
			time.Sleep(time.Second)
		}
		if n := strings.Count(log.String(), "part"); n < 15 || n > 20 {
			t.Errorf("%d lines in ten minutes:\n%s", n, &log)
		}
		log.Reset()
		for range 60 {
			s.noteStatus(0, &up, nil, 0)
			time.Sleep(time.Second)
		}
		if said := log.String(); strings.Count(said, "\n") != 1 || !strings.Contains(said, "takes part") || !strings.Contains(said, "left_out=") {
			t.Errorf("of a member that stays up:\n%s", said)
		}
	})
}
