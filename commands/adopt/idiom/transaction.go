package idiom

import "github.com/lockproxy/lockproxy/commands/adopt/idiom/lua"

// Transaction makes a call of several on the key of one lock, which are run one after the other, as one: it is
// answered with an array of their replies.
func Transaction(key string, calls []*Call, proto int) *Call {
	return &Call{
		key: key, proto: proto, adopted: func(other string) bool { return other == key },
		run: func(w *world) (lua.Reply, error) {
			replies := make([]any, 0, len(calls))
			for _, c := range calls {
				w.adopted, w.readOnly, w.inScript, w.deadlines, w.dialect = c.adopted, c.readOnly, false, c.deadlines, c.dialect
				before := w.is
				r, err := c.run(w)
				if err == nil && c.reads && w.is != before {
					err = errNotCompared
				}
				if err != nil {
					return nil, err
				}
				replies = append(replies, r)
			}
			return replies, nil
		},
	}
}
