package main

// versionRule says which renewals a node applies to a hold it has.
type versionRule uint8

const (
	anyVersion   versionRule = iota // every renewal, in order of arrival
	largerNumber                    // a larger number than the stored one; an equal one is taken for a repeat
	sameLineage                     // a larger number of the stored lineage, or a take-over of exactly the stored version
	uniqueNumber                    // a larger number, and an equal one only from the same round
)

// Rules are what proxies and nodes do beyond the plain quorum lock. The zero
// value is the broken lock; soundRules is the one to build.
type Rules struct {
	Version       versionRule
	MinOnSend     bool // sending a shortening renewal lowers the believed validity at once
	Guard         bool // a node puts a hold back only if it has seen no fence above the grant's
	Burn          bool // the final release raises the counter above the grant's fence, wherever it arrives
	FenceMatch    bool // a renewal or read counts a hold only under the grant's own fence
	ReadsGranted  bool // a hold that was put back counts neither in a foreign read nor in an UNLOCK without memory
	RepairVotes   bool // a hold put back counts as a vote of that round
	ForeignRepair bool // a proxy that took the grant over by reading puts holds back in that round too
	ReadQuorum    bool // a foreign round counts from a quorum read, and needs a quorum of votes
	ForeignBound  bool // a foreign round completes before the Q-th largest end it read
	OwnBound      bool // an own round completes before the validity the proxy remembers
	VotesOnly     bool // nodes in quarantine are neither read nor counted
	AutoGrows     bool // renewals nobody asked for never shorten
	CancelSends   bool // a request given up sends nothing more
	UnlockAsks    bool // UNLOCK within the remembered validity counts only nodes that saw no later fence, or by Unnoted
	Notes         bool // a renewal that may shorten is sent only after a quorum noted that
	Unnoted       bool // UNLOCK is also content with a quorum that noted no such renewal, whatever else they answer
	ForceNotes    bool // FORCE releases only after a quorum noted it
	ForceBurns    bool // and raises the counter above the grant's fence
	NotedRefuses  bool // a node with a note of the grant does not put it back
	NotedVotes    bool // where a vote says noted, votes that put the hold back do not count
	ToldVotes     bool // nor do votes from records that an earlier renewal put back
	AskedInTime   bool // UNLOCK goes by memory only if the remembered validity runs when it is asked
}

func soundRules() Rules {
	return Rules{
		Version: sameLineage, MinOnSend: true, Guard: true, Burn: true, FenceMatch: true, ReadsGranted: true,
		RepairVotes: true, ReadQuorum: true, ForeignBound: true, OwnBound: true, VotesOnly: true,
		AutoGrows: true, CancelSends: true, UnlockAsks: true, Notes: true, Unnoted: true, AskedInTime: true,
		ForceNotes: true, ForceBurns: true, NotedRefuses: true, NotedVotes: true, ToldVotes: true,
	}
}

// Config bounds a search. Times are ticks; a tick is any wait.
type Config struct {
	Rules
	Nodes, Quorum   int
	Long, Short     int  // the two leases a renewal may ask for
	Drift           int  // what a proxy takes off; a node's lease lasts up to this much shorter than asked
	Quarantine      int  // how long a node that forgot does not vote
	Requests        int  // renewals the owner may ask for
	Pending         int  // short renewals proxy 0 has already sent and given up, all still under way
	Skipped         int  // renewals it had sent before those, all lost
	Autos           int  // renewals proxy 0 makes by itself
	Losses          int  // how often a node may forget
	AtOnce          bool // a bare quorum notes a renewal in one step with its sending, the latest moment it can
	Shortens        bool // the owner may ask for the short lease
	Unlocks         bool
	Dup             bool // a renewal may be executed again at any time
	DupAcquire      bool // the owner's acquire may be executed once more, late, on every node
	OneProxy        bool // the owner never uses proxy 1
	Force           bool // an operator may take the lock away
	NoRival         bool
	NoLate          bool // the owner's acquire has arrived on every node
	Lapse           bool // promise P6 counts: no renewal brings a lapsed lease back
	ProxiesRemember bool // proxies never forget a grant by themselves
}

func defaultConfig() Config {
	return Config{Rules: soundRules(), Nodes: 3, Quorum: 2, Long: 4, Short: 2, Drift: 1, Quarantine: 4, Requests: 2, Shortens: true, Unlocks: true}
}
