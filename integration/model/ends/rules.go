package main

// Rules are what proxies and nodes do about holds with ends of their own. NoteRelease,
// NodeChecks and CapsLocks are not in soundRules: the first two do not make up for
// TrustHold, nor the third for SparesLocks, and beside these no search needs them.
type Rules struct {
	OwnEnds      bool // LOCK prolongs no other hold
	NoteBefore   bool // a proxy has a quorum note the grant before it renews with a shorter ttl
	NoteRelease  bool // and before a release that, as far as it knows, brings the end of the lease forward
	NodeChecks   bool // a node refuses a release that leaves holds and brings its end of the lease forward, unless it was noted first
	TrustHold    bool // UNLOCK goes by memory only if the remembered validity of the hold it gives back runs, not that of any
	TrustAll     bool // and for several holds, only if that of each of them runs, not that of one
	SparesLocks  bool // a RENEW that reads leaves out the holds of LOCKs that its proxy had under way since it was asked for
	CapsLocks    bool // LOCK tells no more than what its proxy remembers of other holds, if a RENEW was asked for there meanwhile
	NamesMaybe   bool // a RENEW that reads names also holds that only some nodes have, if a quorum may have them with those that it did not hear
	NamesAll     bool // a node does not apply a RENEW that goes by memory and does not name all live holds there; the proxy reads then
	TakesOver    bool // a hold taken later, which the proxy does not know, takes over the end of one that is given back
	Raises       bool // a RENEW lets holds that it does not name end no earlier than those it does
	BoundAdded   bool // a hold that a node adds ends no later than the lease there
	BareRetries  bool // a retry of a release leaves the other holds out, whose rests have aged since
	FreshNotes   bool // FRESH is sent only after a quorum noted the grant it ends
	NotedRefuses bool // a node with a note of the grant does not put it back
	ToldVotes    bool // where a vote of a renewal says noted, records that were put back do not count
	Marks        bool // holds that were given back are marked
}

func soundRules() Rules {
	return Rules{OwnEnds: true, NoteBefore: true, TrustHold: true, TrustAll: true, SparesLocks: true, NamesMaybe: true, NamesAll: true, TakesOver: true, Raises: true,
		BoundAdded: true, BareRetries: true, FreshNotes: true, NotedRefuses: true, ToldVotes: true, Marks: true}
}

// Config bounds a search. Times are ticks; a tick is any wait.
type Config struct {
	Rules
	First      int // ttl of the hold A begins with
	Second     int // ttl of the one it may take; 0: it takes none
	Fresh      int // ttl of a FRESH one; 0: it takes none
	Long       int // ttl of a renewal
	Short      int // of another; 0: it asks for no such
	Rival      int // ttl of B's lock; 0: nobody else wants the name
	Drift      int
	Quarantine int
	Renewals   int
	Unlocks    int
	Losses     int
	AtOnce     bool // notes are made in one step with the sending
	OneByOne   bool // A asks nothing while it awaits an answer
	OneProxy   bool
	All        bool // A may ask for UNLOCK ALL
	Forgotten  bool // proxy 0 does not remember what A begins with
	Forget     bool // proxies may forget a grant by themselves
	OnTwo      bool // the third node lacks what A begins with, and no LOCK of that ever comes to it
	Both       bool // A begins with its second hold too, made through proxy 0
	Apart      bool // it was made through proxy 1
	Partly     bool // the third node lacks that one, and no LOCK of it ever comes to it
	Elsewhere  bool // proxy 1 has renewed the first hold with the long ttl, by reading, and knows of no other
	CountEnds  bool // promise E counts
}
