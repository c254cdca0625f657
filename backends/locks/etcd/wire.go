package etcd

import (
	"encoding/json"
	"errors"
	"slices"
	"strconv"
)

// The messages of etcd's gateway, as far as they are used: its protobuf in JSON. Bytes are in base64, and whole numbers
// are text in answers.

type header struct {
	ClusterID string `json:"cluster_id"`
	MemberID  string `json:"member_id"`
	Revision  int64  `json:"revision,string"`
}

func (h *header) cluster() string { return h.ClusterID }

type keyValue struct {
	Key   []byte `json:"key"`
	Value []byte `json:"value"`
	Mod   int64  `json:"mod_revision,string"`
}

type rangeRequest struct {
	Key   []byte `json:"key"`
	End   []byte `json:"range_end,omitempty"`
	Limit int64  `json:"limit,omitempty"`
	Own   bool   `json:"serializable,omitempty"` // as the member has it, which asks no other one
}

type rangeResponse struct {
	header `json:"header"`
	Kvs    []keyValue `json:"kvs"`
	More   bool       `json:"more"`
}

type putRequest struct {
	Key   []byte `json:"key"`
	Value []byte `json:"value"`
	Lease string `json:"lease,omitempty"`
}

type deleteRequest struct {
	Key []byte `json:"key"`
	End []byte `json:"range_end,omitempty"`
}

type requestOp struct {
	Range  *rangeRequest  `json:"request_range,omitempty"`
	Put    *putRequest    `json:"request_put,omitempty"`
	Delete *deleteRequest `json:"request_delete_range,omitempty"`
	Txn    *txnRequest    `json:"request_txn,omitempty"`
}

// A compare holds if a key, or each of a range, was written last by this revision, or before it; 0: there is none. Or it holds
// if a key has this value.
type compare struct {
	Result string `json:"result"`
	Target string `json:"target"`
	Key    []byte `json:"key"`
	End    []byte `json:"range_end,omitempty"`
	Mod    string `json:"mod_revision,omitempty"`
	Value  []byte `json:"value,omitempty"`
}

func modIs(key []byte, revision int64) compare {
	return compare{Result: "EQUAL", Target: "MOD", Key: key, Mod: strconv.FormatInt(revision, 10)}
}

func valueIs(key, value []byte) compare {
	return compare{Result: "EQUAL", Target: "VALUE", Key: key, Value: value}
}

// noneSince holds if no key from one to another was written behind this revision.
func noneSince(from, to []byte, revision int64) compare {
	return compare{Result: "LESS", Target: "MOD", Key: from, End: to, Mod: strconv.FormatInt(revision+1, 10)}
}

type txnRequest struct {
	Compare []compare   `json:"compare,omitempty"`
	Success []requestOp `json:"success,omitempty"`
	Failure []requestOp `json:"failure,omitempty"`
}

// remove has the transaction remove the keys from one to another; nil: this one only.
func (t *txnRequest) remove(from, to []byte) {
	t.Success = append(t.Success, requestOp{Delete: &deleteRequest{Key: from, End: to}})
}

type txnResponse struct {
	header    `json:"header"`
	Succeeded bool         `json:"succeeded"`
	Responses []responseOp `json:"responses"`
}

type responseOp struct {
	Range *rangeResponse `json:"response_range"`
	Txn   *txnResponse   `json:"response_txn"`
}

const mostInPack = 48

// packed puts many operations into nested transactions of mostInPack each: etcd limits the operations of one transaction (--max-txn-ops),
// and counts a nested one as one. Few operations stay as they are.
func packed(ops []requestOp) (packs []requestOp) {
	if len(ops) <= mostInPack {
		return ops
	}
	for some := range slices.Chunk(ops, mostInPack) {
		packs = append(packs, requestOp{Txn: &txnRequest{Success: some}})
	}
	return packs
}

// unpacked is the answers to the operations that packed was given.
func (r *txnResponse) unpacked() (all []responseOp) {
	for _, x := range r.Responses {
		if x.Txn != nil {
			all = append(all, x.Txn.Responses...)
		} else {
			all = append(all, x)
		}
	}
	return all
}

var errLacks = errors.New("an answer of etcd lacks what was asked for")

// at is what a range in the answer found.
func (r *txnResponse) at(i int) (*rangeResponse, error) {
	if i >= len(r.Responses) || r.Responses[i].Range == nil {
		return nil, errLacks
	}
	return r.Responses[i].Range, nil
}

// first is what a range found first; nil: nothing.
func (r *rangeResponse) first() *keyValue {
	if len(r.Kvs) == 0 {
		return nil
	}
	return &r.Kvs[0]
}

type leaseRequest struct {
	TTL int64 `json:"TTL"`
}

type leaseResponse struct {
	header `json:"header"`
	ID     string `json:"ID"`
	TTL    int64  `json:"TTL,string"`
}

type authRequest struct {
	Name     string `json:"name"`
	Password string `json:"password"`
}

type authResponse struct {
	Token string `json:"token"`
}

type statusResponse struct {
	header  `json:"header"`
	Leader  string   `json:"leader"`
	Learner bool     `json:"isLearner"`
	Errors  []string `json:"errors"`
	Version string   `json:"version"`
	Size    int64    `json:"dbSize,string"`
	Quota   int64    `json:"dbSizeQuota,string"` // since 3.6
}

// hasLeader reports whether the member knows of one.
func (r *statusResponse) hasLeader() bool { return r.Leader != "" && r.Leader != "0" }

type watchRequest struct {
	Create watchCreate `json:"create_request"`
}

type watchCreate struct {
	Key     []byte   `json:"key"`
	End     []byte   `json:"range_end"`
	Filters []string `json:"filters,omitempty"`
	PrevKV  bool     `json:"prev_kv,omitempty"`
}

type watchResponse struct {
	Result struct {
		Created  bool         `json:"created"`
		Canceled bool         `json:"canceled"`
		Reason   string       `json:"cancel_reason"`
		Events   []watchEvent `json:"events"`
	} `json:"result"`
	Error json.RawMessage `json:"error"`
}

type watchEvent struct {
	KV   keyValue  `json:"kv"`
	Prev *keyValue `json:"prev_kv"`
}

// An errorResponse is what the gateway says instead of an answer.
type errorResponse struct {
	Code    int    `json:"code"` // of gRPC
	Error   string `json:"error"`
	Message string `json:"message"`
}

// Codes of gRPC.
const (
	codeInvalidArgument = 3
	codeNotFound        = 5
	codePermission      = 7
	codeExhausted       = 8
	codePrecondition    = 9
	codeUnauthenticated = 16
)
