package voters

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks/vote"
	"github.com/lockproxy/lockproxy/scripts"
)

func TestPlanRepairs(t *testing.T) {
	const aged = missingTimeout
	list := func(fingerprint, names string) vote.NodeList {
		return vote.NodeList{Fingerprint: fingerprint, Names: names}
	}
	ours := list("ours", "our nodes")
	tests := []struct {
		name, nodes string // v votes (fence 100+i), w does, with a later set, u unregistered, o has an old record, l another list, f without floor, F for max-ttl, q in quarantine, x silent
		missing     time.Duration
		bootstrap   string
		want        string // one letter per node: n new, g forgot, r restored from 104, c from the clock, s told the set, - nothing
		set         string // that nodes are told to be in
	}{
		{"all new", "uuuuu", 0, BootstrapAuto, "nnnnn", "ours our nodes  "},
		{"all new, strictly", "uuuuu", 0, BootstrapStrict, "-----", "ours our nodes  "},
		{"all new, strictly, for long", "uuuuu", startTimeout, BootstrapStrict, "ggggg", "ours our nodes  "},
		{"one has not answered", "uuuux", 0, BootstrapAuto, "-----", "ours our nodes  "},
		{"one never answers", "uuuux", startTimeout, BootstrapAuto, "gggg-", "ours our nodes  "},
		{"one forgot", "uvvvv", aged, BootstrapAuto, "g----", "ours our nodes  "},
		{"one is perhaps being enlisted", "uvvvv", aged / 2, BootstrapAuto, "-----", "ours our nodes  "},
		{"floor from a quorum", "fvvxv", 0, BootstrapAuto, "r----", "ours our nodes  "},
		{"no quorum kept its memory", "ffqvv", 0, BootstrapAuto, "-----", "ours our nodes  "},
		{"and a minute is over", "FFFvv", 0, BootstrapAuto, "ccc--", "ours our nodes  "},
		{"one node", "u", 0, BootstrapAuto, "n", "ours our nodes  "},
		{"the later set counts", "uvvwv", aged, BootstrapAuto, "gss-s", "theirs their nodes next next nodes"},
		{"an old record", "ovvvv", 0, BootstrapAuto, "g----", "ours our nodes  "},
		{"all old, strictly", "ooooo", 0, BootstrapStrict, "ggggg", "ours our nodes  "},
		{"new ones beside an old record", "ouuuu", 0, BootstrapAuto, "g----", "ours our nodes  "},
		{"another list, and a quorum with this", "ufvlvv", aged, BootstrapAuto, "------", ""},
		{"another list, and no quorum with this", "ufFlv", startTimeout, BootstrapAuto, "-----", ""},
		{"it missed the last change", "lwwwq", 0, BootstrapAuto, "s----", "theirs their nodes next next nodes"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := Options{MaxTTL: time.Hour, Bootstrap: tt.bootstrap}
			var votes []vote.Vote
			var missing []time.Duration
			for i, l := range tt.nodes {
				votes = append(votes, map[rune]vote.Vote{
					'v': {Kind: vote.Yes, Fence: int64(100 + i), Set: &vote.NodeSet{Now: ours}}, 'w': {Kind: vote.Yes, Fence: int64(100 + i), Set: &vote.NodeSet{Epoch: 2, Now: list("theirs", "their nodes"), Next: list("next", "next nodes")}},
					'o': {Code: vote.NoRecord, OlderFormat: true, Err: ErrTimeout}, 'l': {Code: vote.OtherSet, Set: &vote.NodeSet{Epoch: 1}, Err: ErrTimeout}, 'u': {Code: vote.NoRecord, Wait: 7, Replid: "id", Err: ErrTimeout},
					'f': {Code: vote.Floorless, Wait: 59_999, Err: ErrTimeout}, 'F': {Code: vote.Floorless, Wait: 60_000, Err: ErrTimeout},
					'q': {Code: vote.Quarantined, Err: ErrTimeout}, 'x': {Err: ErrTimeout},
				}[l])
				missing = append(missing, tt.missing)
			}
			got := []byte("------"[:len(votes)])
			for _, o := range repairsFor(votes, missing, len(votes)/2+1, o, ours) {
				got[o.node] = map[string]byte{"new": 'n', "forgot": 'g', "104": 'r', "0": 'c', "set": 's'}[o.args[0]]
				if o.script != scripts.Restore && strings.Join(o.args[len(o.args)-4:], " ") != tt.set {
					t.Errorf("%s: %q", tt.nodes, o.args)
				}
			}
			if string(got) != tt.want {
				t.Errorf("%s: %s, want %s", tt.nodes, got, tt.want)
			}
		})
	}
}

// TestPlanRepairs_RecordWasSeen: a node whose record this proxy has seen is not new when it has none, and has not to be watched.
// With fewer than three nodes all may be emptied on purpose, one after the other.
func TestPlanRepairs_RecordWasSeen(t *testing.T) {
	yes, none, silent := vote.Vote{Kind: vote.Yes}, vote.Vote{Code: vote.NoRecord}, vote.Vote{Err: ErrTimeout}
	for _, tt := range []struct {
		name   string
		before []vote.Vote
		now    []vote.Vote
		want   int // nodes that are registered as forgetful
	}{
		{"seen", []vote.Vote{yes, yes, yes}, []vote.Vote{none, yes, yes}, 1},
		{"seen in quarantine", []vote.Vote{{Code: vote.Quarantined}, yes, yes}, []vote.Vote{none, yes, yes}, 1},
		{"never seen", []vote.Vote{silent, yes, yes}, []vote.Vote{none, yes, yes}, 0},
		{"without one before", []vote.Vote{none, yes, yes}, []vote.Vote{none, yes, yes}, 0},
		{"all at once, which may still start", []vote.Vote{yes, yes, yes}, []vote.Vote{none, none, none}, 0},
		{"one of two", []vote.Vote{yes, yes}, []vote.Vote{none, yes}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := New(Options{Nodes: servers(t, []string{"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"}[:len(tt.now)]...)})
			if err != nil {
				t.Fatal(err)
			}
			s.noteRecords(tt.before)
			actions := s.planRepairs(tt.now, true)
			if len(actions) != tt.want {
				t.Fatalf("%+v, want %d", actions, tt.want)
			}
			for _, a := range actions {
				if a.node != 0 || a.script != scripts.Register || a.args[0] != "forgot" {
					t.Errorf("%+v", a)
				}
			}
		})
	}
}

// TestSet_NoteEmptied: that all nodes have forgotten is logged once, also if some were enlisted again before the last one answered, as
// after a restart.
func TestSet_NoteEmptied(t *testing.T) {
	yes, none, silent, waits := vote.Vote{Kind: vote.Yes}, vote.Vote{Code: vote.NoRecord}, vote.Vote{Err: ErrTimeout}, vote.Vote{Code: vote.Quarantined}
	for _, tt := range []struct {
		name  string
		looks [][]vote.Vote
		want  int
	}{
		{"all at once", [][]vote.Vote{{none, none, none}, {waits, waits, waits}}, 1},
		{"some are back first", [][]vote.Vote{{silent, none, none}, {none, waits, waits}, {waits, waits, waits}}, 1},
		{"the last one is back late", [][]vote.Vote{{silent, waits, waits}, {silent, waits, waits}, {waits, waits, waits}}, 1},
		{"one may remember", [][]vote.Vote{{silent, none, none}, {silent, waits, waits}}, 0},
		{"one remembers", [][]vote.Vote{{none, waits, yes}, {waits, waits, yes}}, 0},
		{"again", [][]vote.Vote{{none, none, none}, {waits, waits, yes}, {yes, yes, yes}, {none, none, none}}, 2},
	} {
		var log strings.Builder
		s, err := New(Options{Nodes: servers(t, "127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"), Log: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		s.noteRecords([]vote.Vote{yes, yes, yes})
		for _, votes := range tt.looks {
			s.noteEmptied(votes)
		}
		if got := strings.Count(log.String(), "all lock nodes are empty"); got != tt.want {
			t.Errorf("%s: logged %d times, want %d\n%s", tt.name, got, tt.want, &log)
		}
	}
}
