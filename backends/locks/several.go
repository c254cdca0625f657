package locks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// A NamesError reports which of several names were not renewed, or not given back. All others were.
type NamesError struct{ Failed []NameError } // in the order in which they were said

// A NameError is what happened to one name.
type NameError struct {
	Key
	Err error
}

func (e *NamesError) Error() string {
	var b strings.Builder
	for i, f := range e.Failed {
		fmt.Fprintf(&b, "%s%.64q: %v", [...]string{"", "; "}[min(i, 1)], f.Name, f.Err)
	}
	return b.String()
}

// Unwrap is for errors.Is and errors.As.
func (e *NamesError) Unwrap() (all []error) {
	for _, f := range e.Failed {
		all = append(all, f.Err)
	}
	return all
}

// Names are the names of a request, Key and then Others.
func (r *LockRequest) Names() []Key { return append([]Key{r.Key}, r.Others...) }

// sortedNames are the names in their order, so that two requests take them in the same one.
func (r *LockRequest) sortedNames() []Key {
	names := r.Names()
	slices.SortFunc(names, Key.Compare)
	return names
}

// grantOf is what a Decision grants of the i-th of Names.
func (d *Decision) grantOf(i int) *Grant {
	if i == 0 {
		return &d.Grant
	}
	return &d.Others[i-1]
}

// For is the attempt for one of its names only.
func (a *Attempt) For(k Key) *Attempt {
	one := *a
	one.Key, one.Others, one.Intent = k, nil, 0
	return &one
}

// checkOthers refuses what a LOCK for several names cannot have.
func checkOthers(r *LockRequest) error {
	switch {
	case len(r.Others) == 0:
		return nil
	case r.Permits > 0:
		return errors.New("a LOCK for several names takes no permits")
	case r.Open:
		return errors.New("a LOCK for several names has an end")
	case r.Replaces != nil:
		return errors.New("a LOCK for several names replaces no grant")
	case r.Barge:
		return errors.New("a LOCK for several names does not pass those who wait")
	}
	return checkNames(r.Names())
}

func checkNames(names []Key) error {
	if len(names) == 0 || len(names) > MaxNames {
		return fmt.Errorf("there are %d names, not 1 to %d", len(names), MaxNames)
	}
	seen := make(map[string]bool, len(names))
	for _, k := range names {
		if err := checkName(k); err != nil {
			return err
		}
		if k.DB != names[0].DB {
			return errors.New("the names are of several databases")
		}
		if seen[k.Name] {
			return fmt.Errorf("%.64q is named twice", k.Name)
		}
		seen[k.Name] = true
	}
	return nil
}

func checkName(k Key) error {
	if k.Name == "" || len(k.Name) > MaxName {
		return fmt.Errorf("the name has %d bytes, not 1 to %d", len(k.Name), MaxName)
	}
	return nil
}

// RenewAll is Renew for several names, 1 to MaxNames of one database, all at once; r.Key is not used, and Fence and Open may not be set.
// validity is the smallest. Each name is renewed, whatever happens to the others: if some are not, the error is a *NamesError.
func (s *Service) RenewAll(ctx context.Context, names []Key, r RenewRequest) (validity time.Duration, err error) {
	if r.Fence != 0 || r.Open {
		return 0, errors.New("a RENEW of several names says no fence, and has an end")
	}
	if err := errors.Join(checkNames(names), s.checkTTL(r.TTL)); err != nil {
		return 0, err
	}
	ends := make([]time.Duration, len(names)) // the other names may take a while
	err = eachName(names, func(i int, k Key) error {
		one := r
		one.Key = k
		left, err := s.Renew(ctx, one)
		ends[i] = s.store.Now() + left
		return err
	})
	if err != nil {
		return 0, err
	}
	if validity = slices.Min(ends) - s.store.Now(); validity <= 0 {
		return 0, fmt.Errorf("%w: one of the names was renewed for less time than the others took", ErrLost)
	}
	return validity, nil
}

// UnlockAll is Unlock for several names, 1 to MaxNames of one database, all at once; r.Key is not used, and Fence may not be set. It
// returns how many holds the owner has left of all of them. Each name is given back, whatever happens to the others: if some are not,
// the error is a *NamesError.
func (s *Service) UnlockAll(ctx context.Context, names []Key, r UnlockRequest) (holdsLeft int, err error) {
	if r.Fence != 0 {
		return 0, errors.New("an UNLOCK of several names says no fence")
	}
	if err := errors.Join(checkNames(names), checkReq(r.Owner, r.Req)); err != nil {
		return 0, err
	}
	left := make([]int, len(names))
	err = eachName(names, func(i int, k Key) (err error) {
		one := r
		one.Key = k
		left[i], err = s.Unlock(ctx, one)
		return err
	})
	for _, n := range left {
		holdsLeft += n
	}
	return holdsLeft, err
}

// eachName does something with every name at the same time. The error is a *NamesError.
func eachName(names []Key, do func(i int, k Key) error) error {
	errs := make([]error, len(names))
	var all sync.WaitGroup
	for i, k := range names {
		all.Go(func() { errs[i] = do(i, k) })
	}
	all.Wait()
	var failed []NameError
	for i, err := range errs {
		if err != nil {
			failed = append(failed, NameError{names[i], err})
		}
	}
	if len(failed) > 0 {
		return &NamesError{failed}
	}
	return nil
}
