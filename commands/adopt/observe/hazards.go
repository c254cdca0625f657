package observe

// A hazard is something in the use of a lock that can go wrong, or that changes when it is adopted.
type hazard uint8

const (
	noExpiry hazard = iota
	setNXAlone
	delUncompared
	expireUncompared
	constantValue
	processValue
	heldTooLong
	overMaxTTL
	underMinTTL
	otherConnection
	askedAgain
	keyspaceEvents
	keysNotDeclared
	scriptDoesMore
	insideMulti
	trackedReads
	hazards // how many there are
)

// described are the names of hazards, and what they mean.
var described = [hazards]struct{ name, means string }{
	noExpiry:         {"no expiry", "The lock was taken without an end, and a second later it still had none. If its holder dies it is never free again. Adopted, it is kept for max-hold; or it is refused, or ends after a lease, as no-expiry says."},
	setNXAlone:       {"setnx without expire", "SETNX took the lock, and no EXPIRE followed within a second: a client that dies between the two leaves a lock that nobody can take."},
	delUncompared:    {"del without compare", "The lock was deleted by a command that does not compare the value. A client whose lock has ended deletes the next one's. as=strict refuses it."},
	expireUncompared: {"expire without compare", "The end of the lock was moved by a command that does not compare the value. A client whose lock has ended extends the next one's. as=strict refuses it."},
	constantValue:    {"constant value", "Several connections took locks with the same value, so comparing it does not tell them apart: one whose lock has ended can release the next one's. A process with a pool and one value for all of it looks the same."},
	processValue:     {"value of a process", "One connection took many locks with the same value. Threads that share it are not told apart when they release or extend."},
	heldTooLong:      {"held longer than its ttl", "The holder released or extended the lock when its ttl had run out. Its work went on without the lock, and another may have had it meanwhile: make the ttl longer, or extend in time."},
	overMaxTTL:       {"ttl over max-ttl", "The ttl asked for is longer than --max-ttl, so adoption refuses it. Raise --max-ttl, or shorten the ttl."},
	underMinTTL:      {"ttl under min-ttl", "The ttl asked for is shorter than --min-ttl. Adopted, it is raised to that."},
	otherConnection:  {"released by another connection", "The lock was released on another connection than the one that took it, as pools do. This is no fault, but a lock that is bound to its connection, as with SESSION, is not for this code."},
	askedAgain:       {"same value asked again after its connection closed", "A connection closed, and another asked for the lock with the value that holds it: a reply was lost and the command sent again. It is refused, by Redis too, and the lock is idle until its ttl ends."},
	keyspaceEvents:   {"waits by keyspace events", "Somebody subscribes to keyspace notifications of the key. An adopted key is no key of the upstream, so there are none: who waits has to ask again, or wait for a PUBLISH of the releasing script."},
	keysNotDeclared:  {"keys not declared", "A script got the key as an argument, not as one of its keys. Adoption finds it there; a Redis Cluster would not."},
	scriptDoesMore:   {"script does more", "A script does something to the lock, or beside it, that cannot be decided by the lock nodes in one step. It is refused when the key is adopted."},
	insideMulti:      {"inside MULTI", "The key was used inside MULTI, or was WATCHed. Replies are not looked at there. Adopted, a transaction is about one lock; one with other keys is refused."},
	trackedReads:     {"tracked reads", "The key was read on a connection with CLIENT TRACKING. An adopted key is not tracked: the client would keep its copy for ever."},
}
