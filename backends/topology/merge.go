package topology

import (
	"cmp"
	"slices"
)

// A mergedView is what the views of several nodes agree on.
type mergedView struct {
	shards []slotRange // first is the lowest slot; last is not used
	slots  []uint16    // index in shards, or NoShard
}

// merge decides who serves each slot where views differ. As among the nodes
// themselves, the claim with the highest epoch wins, unless the node that it names
// denies it; then the claim in most views.
func merge(views []*nodeView) mergedView {
	viewOf := map[string]*nodeView{}
	for _, v := range views {
		v.indexSlots()
		if v.self != "" {
			viewOf[v.self] = v
		}
	}
	m := mergedView{slots: make([]uint16, SlotCount)}
	index := map[string]int{}
	for slot := range m.slots {
		best := chooseOwner(views, slot, func(r *slotRange) bool {
			v := viewOf[r.master.id]
			return v == nil || v.serves(r.master.id, slot)
		})
		m.slots[slot] = NoShard
		if best == nil {
			continue
		}
		i, ok := index[best.master.id]
		if !ok {
			i = len(m.shards)
			index[best.master.id] = i
			m.shards = append(m.shards, slotRange{first: slot, master: best.master, replicas: best.replicas})
			if v := viewOf[best.master.id]; v != nil { // the master knows its replicas best
				m.shards[i].replicas = v.bySlot[slot].replicas
			}
		}
		m.slots[slot] = uint16(i)
	}
	m.addSlotless(views)
	return m
}

// chooseOwner is the slot's range in one of the views: among the valid ones that with
// the highest epoch, then that in most views; nil if none is valid.
func chooseOwner(views []*nodeView, slot int, valid func(*slotRange) bool) (best *slotRange) {
	var epoch uint64
	var count int
	for _, v := range views {
		r := v.bySlot[slot]
		if r == nil || best != nil && r.master.id == best.master.id || !valid(r) {
			continue
		}
		e := v.epochs[r.master.id]
		n := countViews(views, slot, r.master.id)
		if best == nil || e > epoch || e == epoch && n > count {
			best, epoch, count = r, e, n
		}
	}
	return best
}

// countViews is the number of views in which the node with the id serves the slot.
func countViews(views []*nodeView, slot int, id string) (n int) {
	for _, v := range views {
		if v.serves(id, slot) {
			n++
		}
	}
	return n
}

func (v *nodeView) serves(id string, slot int) bool {
	return v.bySlot[slot] != nil && v.bySlot[slot].master.id == id
}

// indexSlots fills bySlot from ranges.
func (v *nodeView) indexSlots() {
	v.bySlot = make([]*slotRange, SlotCount)
	for i := range v.ranges {
		for slot := v.ranges[i].first; slot <= v.ranges[i].last; slot++ {
			v.bySlot[slot] = &v.ranges[i]
		}
	}
}

// addSlotless adds the masters without slots, which may be about to get their first. A node that was reset has another id
// at its old address, and some may know it by both.
func (m *mergedView) addSlotless(views []*nodeView) {
	known := map[string]bool{} // by ids and addresses
	for _, s := range m.shards {
		known[s.master.id], known[s.master.addr] = true, true
	}
	var slotless []masterNode
	for _, v := range views {
		for _, n := range v.slotless {
			if !known[n.id] && !known[n.addr] && n.addr != "" {
				known[n.id], known[n.addr] = true, true
				slotless = append(slotless, n)
			}
		}
	}
	slices.SortFunc(slotless, func(a, b masterNode) int { return cmp.Compare(a.addr, b.addr) })
	for _, n := range slotless {
		m.shards = append(m.shards, slotRange{first: SlotCount, master: n})
	}
}
