package rails

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"ringmaster/distributed/rdma/matrix"
	"ringmaster/distributed/rdma/plan"
)

// Plan is the result of MakePlan.
type Plan struct {
	Matrix   matrix.Matrix
	Topology matrix.Topology
	Map      string // for people: the cables, what is not used and why, ring or mesh
}

// MakePlan finds the cables between hosts, which are given in the order of their
// ranks. The map is valid even with an error.
func MakePlan(reports []Report, switched, ring bool) (Plan, error) {
	if err := sameHost(reports); err != nil {
		return Plan{}, err
	}
	var hosts, usable []matrix.Host
	var notes []string
	linux, devices := false, 0
	for rank, r := range reports {
		linux = linux || r.System == "linux"
		h := matrix.Host{Name: r.Name}
		for _, n := range r.Notes {
			notes = append(notes, fmt.Sprintf("rank %d %s: %s", rank, r.Name, n))
		}
		for _, d := range r.Devices {
			if why := Unusable(&d); why != "" {
				notes = append(notes, fmt.Sprintf("rank %d %s %s is not used: %s", rank, r.Name, d.Name, why))
				continue
			}
			h.Devices = append(h.Devices, d)
		}
		devices += len(h.Devices)
		hosts, usable = append(hosts, r.Host), append(usable, h)
	}
	n := matrix.Discover(usable, switched)
	limitRails(&n)
	n.Notes = append(n.Notes, notes...)
	made := Plan{Matrix: n.Matrix, Map: n.Map(hosts)}
	if err := n.Matrix.Check("", matrix.Rules{Switched: switched}); err != nil {
		return made, err
	}
	var err error
	if made.Topology, err = n.Matrix.Choose(matrix.Preference{Ring: ring, Cost: cost(len(reports))}); err != nil {
		return made, fmt.Errorf("the hosts are not connected for RDMA: %w", notConnected(err, linux && !switched && devices > 0))
	}
	made.Map += made.summary() + "\n"
	return made, nil
}

// cost returns the function that rates a topology of some ranks, as they will when
// they connect and long messages arrive.
func cost(ranks int) func(t matrix.Topology) int64 {
	return func(t matrix.Topology) int64 {
		ns, err := plan.LayerCost(plan.Config{Topology: plan.Topology{Ring: t.Ring, N: ranks, Rails: t.Rails, Cables: t.Cables}, Cap: plan.MaxClass})
		if err != nil {
			return math.MaxInt64
		}
		return ns
	}
}

// limitRails drops the cables of a pair above the supported number.
func limitRails(n *matrix.Network) {
	count := map[[2]int]int{}
	kept := n.Cables[:0:0]
	for _, c := range n.Cables {
		pair := [2]int{c.RankA, c.RankB}
		if count[pair]++; count[pair] > matrix.MaxRails {
			n.Notes = append(n.Notes, fmt.Sprintf("rank %d %s <-> rank %d %s is not used: a pair uses at most %d cables", c.RankA, c.DeviceA, c.RankB, c.DeviceB, matrix.MaxRails))
			continue
		}
		kept = append(kept, c)
	}
	n.Cables = kept
	for _, row := range n.Matrix {
		for j, names := range row {
			row[j] = names[:min(len(names), matrix.MaxRails)] // in the order of the cables
		}
	}
}

// notConnected is the error of a failed choice without its position in the matrix
// file, which does not exist yet.
func notConnected(err error, mayBeSwitched bool) error {
	var p *matrix.Problem
	if errors.As(err, &p) {
		err = fmt.Errorf("%s; %s", p.What, p.Cure)
	}
	if mayBeSwitched {
		err = fmt.Errorf("%w. Between Linux hosts a cable is recognised by a /30 or /31 subnet of its own; if the ports are on a switch, use --switched", err)
	}
	return err
}

// summary describes how the ranks will be connected.
func (p Plan) summary() string {
	cables := "1 cable"
	if p.Topology.Most() > 1 {
		cables = p.Topology.Count() + " cables"
	}
	s := p.Topology.Why + "; " + cables + " per pair"
	if len(p.Topology.Ring) > 2 {
		order := make([]string, len(p.Topology.Ring))
		for i, r := range p.Topology.Ring {
			order[i] = fmt.Sprint(r)
		}
		s += "; ranks " + strings.Join(order, " - ") + " - " + order[0]
	}
	return s
}

// sameHost fails if two reports are from the same host: a host that is listed
// twice would otherwise look like one without cables.
func sameHost(reports []Report) error {
	owner := map[string]int{}
	for rank, r := range reports {
		for _, d := range r.Devices {
			id := d.Domain
			if id == "" && d.PortGUID != "" && d.MAC != "" {
				id = d.PortGUID + " " + d.MAC
			}
			if id == "" {
				continue
			}
			if first, ok := owner[id]; ok && first != rank {
				return fmt.Errorf("rank %d (%s) and rank %d (%s) are the same host: both have %s; list each host once", first, reports[first].Name, rank, r.Name, id)
			}
			owner[id] = rank
		}
	}
	return nil
}
