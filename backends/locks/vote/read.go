package vote

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/redis/rueidis"
)

// ParseRead reads what read answers.
func ParseRead(m []rueidis.RedisMessage) (Vote, error) {
	v := Vote{Kind: Yes, Read: &Reading{}}
	if len(m) < 16 {
		return v, fmt.Errorf("%d values where 16 were expected", len(m))
	}
	var rest, age, reinstated, since, readers, longest int64
	err := cmp.Or(
		ReadText(m[1], &v.Owner), ReadInts(m[2:], &rest, &v.Fence), parseVersion(m[4:], &v.Version),
		ReadText(m[6], &v.Read.LastOwner), ReadInts(m[7:], &v.Read.LastFence), ReadText(m[8], &v.Read.Info), ReadInts(m[9:], &age, &reinstated, &since), parseUnlocked(m[12], &v.Read.Unlock),
		ReadInts(m[13:], &readers, &longest), ReadText(m[15], &v.Grant))
	if err != nil {
		return v, err
	}
	if err = cmp.Or(checkFenceOrNone(v.Fence), checkFenceOrNone(v.Read.LastFence), checkFenceOrNone(v.Read.Unlock.Fence)); err != nil {
		return v, err
	}
	v.Rest, v.Read.Age, v.Read.Reinstated = Millis(rest), Millis(age), reinstated == 1
	v.Read.Since = since == 1
	v.Read.Readers, v.Read.ReaderRest = int(readers), Millis(longest)
	err = parseHolds(m[16:], v.Read)
	return v, err
}

// parseUnlocked reads "left fence hold", or nothing.
func parseUnlocked(m rueidis.RedisMessage, dst *unlocked) error {
	s, err := m.ToString()
	if err != nil || s == "" {
		return err
	}
	_, err = fmt.Sscanf(s, "%d %d %s", &dst.Left, &dst.Fence, &dst.Hold)
	return err
}

// parseHolds reads holds, their ages and what is left of them, the youngest first.
func parseHolds(m []rueidis.RedisMessage, dst *Reading) error {
	for ; len(m) >= 3; m = m[3:] {
		var h NodeHold
		var age, rest int64
		if err := cmp.Or(ReadText(m[0], &h.ID), ReadInts(m[1:], &age, &rest)); err != nil {
			return err
		}
		h.Age, h.Rest = Millis(age), Millis(rest)
		dst.Holds = append(dst.Holds, h)
	}
	slices.SortFunc(dst.Holds, func(a, b NodeHold) int { return cmp.Or(cmp.Compare(a.Age, b.Age), cmp.Compare(a.ID, b.ID)) })
	return nil
}

// ParseReaders reads what readers answers: {1, how many, owner, ms left, ...}.
func ParseReaders(m []rueidis.RedisMessage) (Vote, error) {
	v := Vote{Kind: Yes, ReadBy: map[string]time.Duration{}}
	for pair := m[min(2, len(m)):]; len(pair) >= 2; pair = pair[2:] {
		var owner string
		var rest int64
		if err := cmp.Or(ReadText(pair[0], &owner), ReadInts(pair[1:], &rest)); err != nil {
			return v, err
		}
		v.ReadBy[owner] = Millis(rest)
	}
	return v, nil
}
