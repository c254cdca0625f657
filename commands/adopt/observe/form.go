package observe

import (
	"regexp"
	"strings"

	"github.com/lockproxy/lockproxy/commands/adopt/idiom"
)

// A form is how a lock is used, as the report names it.
type form uint8

// The forms, in the order of the report.
const (
	formSetNXPX form = iota
	formSetNX
	formSETNX
	formThenExpire
	formAcquire
	formAcquireOrExtend
	formFixTTL
	formHash
	formSetXX
	formSet
	formRelease
	formExtend
	formDelIfEq
	formSetIfEq
	formRead
	formWatch
	formDel
	formExpire
	formForceRelease
	formForceExtend
	formReadScript
	formUnknown
	formOther
	formDeadline
	formSorted
	formShares
	formPermits
)

var formNames = [...]string{
	formSetNXPX: "set-nx-px", formSetNX: "set-nx", formSETNX: "setnx", formThenExpire: "then expire",
	formAcquire: "acquire script", formAcquireOrExtend: "acquire-or-extend script", formFixTTL: "acquire script that sets a missing end",
	formHash: "hash", formSetXX: "set-xx", formSet: "set", formRelease: "cad script", formExtend: "extend script",
	formDelIfEq: "del-ifeq", formSetIfEq: "set-ifeq",
	formRead: "get", formWatch: "watch", formDel: "del", formExpire: "expire", formForceRelease: "del script",
	formForceExtend: "expire script", formReadScript: "read script", formUnknown: "script of an unknown text", formOther: "others",
	formDeadline: "setnx, getset of a deadline", formSorted: "sorted set",
	formShares: "read/write lock script", formPermits: "script of a semaphore, or of a rate limit",
}

// idiomOf describes the forms of a row in words.
func idiomOf(forms uint32) string {
	var names []string
	for f, name := range formNames {
		switch has := forms&(1<<f) != 0; {
		case !has, form(f) == formRead && forms&^(1<<formRead|1<<formUnknown) != 0 && forms&(1<<formDel) == 0:
			continue // reads are listed only if they are the compare before a DEL
		case form(f) == formUnknown && forms&(1<<formRelease|1<<formExtend|1<<formAcquire|1<<formAcquireOrExtend|1<<formHash|1<<formSorted) != 0:
			continue // the text of the script has been seen since
		case form(f) == formThenExpire && len(names) > 0:
			names[len(names)-1] += ", then expire"
			continue
		case form(f) == formExpire && forms&(1<<formThenExpire) != 0:
			continue
		}
		names = append(names, name)
	}
	return strings.Join(names, " + ")
}

// formOf is the form of a command, which idiom.Plain takes.
func formOf(command string, words []string) form {
	switch command {
	case "SET":
		has := func(want ...string) bool {
			for _, w := range words[3:] {
				for _, one := range want {
					if strings.EqualFold(w, one) {
						return true
					}
				}
			}
			return false
		}
		switch {
		case len(words) < 4:
			return formSet
		case has("NX") && has("EX", "PX", "EXAT", "PXAT"):
			return formSetNXPX
		case has("NX"):
			return formSetNX
		case has("XX"):
			return formSetXX
		case has("IFEQ"):
			return formSetIfEq
		}
		return formSet
	case "SETNX":
		return formSETNX
	case "SETEX", "PSETEX", "GETSET":
		return formSet
	case "DEL", "UNLINK", "GETDEL":
		return formDel
	case "DELIFEQ":
		return formDelIfEq
	case "DELEX":
		if len(words) > 2 {
			return formDelIfEq
		}
		return formDel
	case "EXPIRE", "PEXPIRE", "EXPIREAT", "PEXPIREAT", "PERSIST":
		return formExpire
	}
	switch command[0] {
	case 'H':
		return formHash
	case 'Z':
		return formSorted
	}
	return formRead
}

func formOfScript(c idiom.Class) form {
	switch c {
	case idiom.Acquire:
		return formAcquire
	case idiom.AcquireOrExtend:
		return formAcquireOrExtend
	case idiom.AcquireFixTTL:
		return formFixTTL
	case idiom.ReleaseOwn:
		return formRelease
	case idiom.ExtendOwn:
		return formExtend
	case idiom.ReadOnly:
		return formReadScript
	case idiom.ForceRelease:
		return formForceRelease
	case idiom.ForceExtend:
		return formForceExtend
	case idiom.Overwrite:
		return formSet
	case idiom.ReentrantAcquire, idiom.ReentrantRelease, idiom.ReentrantExtend:
		return formHash
	}
	switch {
	case c.Permits():
		return formPermits
	case c.Shares():
		return formShares
	}
	return formOther
}

// A sign is what a lock's value looks like.
type sign uint8

const (
	signNone sign = iota
	signHex32
	signHex40
	signUUID
	signBase64
	signBase64Raw
	signBase64Long
	signUUIDAndThread
	signAdded
)

var (
	hex32      = regexp.MustCompile(`\A[0-9a-f]{32}\z`)
	hex40      = regexp.MustCompile(`\A[0-9a-f]{40}\z`)
	uuidAlone  = regexp.MustCompile(`\A[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\z`)
	uuidOfOne  = regexp.MustCompile(`\A[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}:[0-9]+\z`)
	base64     = regexp.MustCompile(`\A[A-Za-z0-9+/]{22}==\z`)
	base64Long = regexp.MustCompile(`\A[A-Za-z0-9+/]{43}=\z`)
	base64Raw  = regexp.MustCompile(`\A[A-Za-z0-9_-]{22}\z`)
)

func signOf(value string) sign {
	switch {
	case hex32.MatchString(value):
		return signHex32
	case hex40.MatchString(value):
		return signHex40
	case uuidAlone.MatchString(value):
		return signUUID
	case uuidOfOne.MatchString(value):
		return signUUIDAndThread
	case base64.MatchString(value):
		return signBase64
	case base64Long.MatchString(value):
		return signBase64Long
	case base64Raw.MatchString(value):
		return signBase64Raw
	case strings.HasPrefix(value, "ADDED:"):
		return signAdded
	}
	return signNone
}

// A guess is which library a row is from. The latest guess counts.
type guess struct {
	library, name string
	form          form
	sign          sign
	taken         bool
}

func (g *guess) client(c *Client) {
	if c.library != "" {
		g.library = c.library
	}
	if c.name != "" {
		g.name = c.name
	}
}

func (g *guess) value(f form, s sign) { g.form, g.sign, g.taken = f, s, true }

// text names the library; empty: nothing points at one.
func (g *guess) text(forms uint32) string {
	library, _, _ := strings.Cut(strings.ToLower(g.library), "(")
	from := func(names ...string) bool {
		if library == "" {
			return true
		}
		for _, n := range names {
			if strings.Contains(library, n) {
				return true
			}
		}
		return false
	}
	releases := forms&(1<<formRelease|1<<formUnknown) != 0
	switch {
	case g.sign == signUUIDAndThread && forms&(1<<formHash) != 0:
		return "Redisson"
	case g.sign == signBase64Long && forms&(1<<formSorted) != 0:
		return "Symfony"
	case g.sign == signAdded:
		return "ShedLock"
	case g.sign == signHex32 && g.form == formSetNXPX && releases && from("redis-py"):
		return "redis-py"
	case g.sign == signHex32 && g.form == formAcquire && from("redis"):
		return "node-redlock"
	case g.sign == signBase64 && g.form == formSetNXPX && from("go-redis", "rueidis"):
		return "redsync"
	case g.sign == signBase64Raw && from("go-redis"):
		return "bsm/redislock"
	case g.sign == signUUID && g.form == formSetNXPX && releases && library != "" && from("ioredis", "node-redis"):
		return "redis-semaphore"
	case g.sign == signUUID && g.form == formAcquireOrExtend && from("jedis", "lettuce"):
		return "Spring Integration"
	case g.library != "":
		return "a client of " + printable(g.library)
	case g.name != "":
		return "clients named " + printable(g.name)
	}
	return ""
}
