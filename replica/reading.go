package replica

import (
	"log/slog"
	"slices"
	"sync"

	"ringmaster/distributed/cluster"
	"ringmaster/internal/units"
	"ringmaster/parallel"
)

// reading tracks which part of the model's file each rank owns, from epoch to epoch.
type reading struct {
	fresh func(s Settings, i int, before *parallel.Part) int64 // Planner.Reads
	lost  func(parts []parallel.Part) int64                    // Planner.Lost

	mu      sync.Mutex // guards the rest
	members []cluster.Hello
	owned   map[int]owned // by rank of the world, in the last epoch that began
	reads   cluster.Reads
	logged  []int // ranks that logLoss has logged since an epoch began
}

// owned is the part of a process.
type owned struct {
	process string
	part    parallel.Part
}

// planned notes the plan of an epoch.
func (r *reading) planned(members []cluster.Hello, s Settings) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.members, r.reads = members, cluster.Reads{}
	r.logLoss(members)
	for i, m := range members {
		var before *parallel.Part
		if o, ok := r.owned[m.Rank]; ok && o.process == m.Process {
			before = &o.part
		}
		one := cluster.Reads{Rank: m.Rank, Host: m.Host, Bytes: r.fresh(s, i, before), Rate: m.ReadRate}
		most := r.reads
		if one.Takes() > most.Takes() || one.Takes() == most.Takes() && one.Bytes > most.Bytes {
			r.reads = one
		}
	}
}

// logLoss logs the bytes of the experts that only the ranks that are gone had: once, and again
// when another rank is lost or an epoch has begun. mu is held.
func (r *reading) logLoss(members []cluster.Hello) {
	survive := map[int]bool{}
	var have []parallel.Part
	for _, m := range members {
		if o, ok := r.owned[m.Rank]; ok && o.process == m.Process {
			survive[m.Rank] = true
			have = append(have, o.part)
		}
	}
	var gone []int
	for rank := range r.owned {
		if !survive[rank] {
			gone = append(gone, rank)
		}
	}
	if !slices.ContainsFunc(gone, func(rank int) bool { return !slices.Contains(r.logged, rank) }) {
		return
	}
	slices.Sort(gone)
	r.logged = append(r.logged, gone...)
	slog.Info("experts that only the lost or departed ranks had are read from disk", "ranks", gone, "size", units.Bytes(r.lost(have)))
}

// began notes that an epoch of these ranks of the world has begun, each with its part of
// the placement [members].
func (r *reading) began(members []int, p parallel.Placement) {
	r.mu.Lock()
	defer r.mu.Unlock()
	process := map[int]string{}
	for _, m := range r.members {
		process[m.Rank] = m.Process
	}
	r.owned, r.logged = map[int]owned{}, nil
	for i, rank := range members {
		r.owned[rank] = owned{process[rank], p[i]}
	}
}

// last returns what ranks have to read because of the last plan.
func (r *reading) last() cluster.Reads {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.reads
}
