package matrix

import (
	"fmt"
	"sort"
)

// Topology is how the ranks of a group are to be joined.
type Topology struct {
	// Ring is the ranks in the order of the cables; nil for a mesh.
	Ring []int
	// Rails is how many cables of every joined pair are used: the fewest that
	// one of them has.
	Rails int
	// Why is the reason in words, for the log.
	Why string
}

// Mesh tells whether every rank is joined to every other.
func (t Topology) Mesh() bool { return t.Ring == nil }

// Wish is what the user asked for.
type Wish struct {
	// Ring prefers a ring where there is one; see RingWanted.
	Ring bool
	// MeshLimit is the most ranks of a mesh, for a device has few queue pairs;
	// 0 for no limit.
	MeshLimit int
	// Cost estimates an operation of the size that matters most, in any unit;
	// it decides where both are possible and neither is wished. nil takes the
	// mesh.
	Cost func(t Topology) int64
}

// MaxSearch is up to how many ranks a ring in another order is looked for.
const MaxSearch = 8

// Choose decides for the ring or the mesh, and in which order the ring goes. A
// checked matrix is given. The ring is taken when a pair has more than one
// cable, or it is wished; the mesh when all are joined and the cost does not
// speak against it. Without either it fails with a *Problem that names a rank.
func (m Matrix) Choose(w Wish) (Topology, error) {
	mesh, hole := m.mesh(w.MeshLimit)
	ring := m.ring()
	several := m.several()
	switch {
	case ring == nil && mesh == nil:
		return Topology{}, m.neither(hole)
	case mesh == nil:
		ring.Why = fmt.Sprintf("ring: %s", hole)
		return *ring, nil
	case ring == nil:
		mesh.Why = "mesh: there is no ring"
		return *mesh, nil
	case w.Ring:
		ring.Why = "ring: asked for"
		return *ring, nil
	case several && ring.Rails > mesh.Rails:
		ring.Why = fmt.Sprintf("ring: uses %d cables of a pair, a mesh %d", ring.Rails, mesh.Rails)
		return *ring, nil
	case several:
		ring.Why = "ring: there are pairs with several cables"
		return *ring, nil
	case w.Cost != nil:
		a, b := w.Cost(*mesh), w.Cost(*ring)
		if b < a {
			ring.Why = fmt.Sprintf("ring: costs %d, the mesh %d", b, a)
			return *ring, nil
		}
		mesh.Why = fmt.Sprintf("mesh: costs %d, the ring %d", a, b)
		return *mesh, nil
	}
	mesh.Why = "mesh: all ranks are joined"
	return *mesh, nil
}

func (m Matrix) several() bool {
	for _, row := range m {
		for _, names := range row {
			if len(names) > 1 {
				return true
			}
		}
	}
	return false
}

// mesh is the mesh, or why there is none.
func (m Matrix) mesh(limit int) (*Topology, string) {
	if limit > 0 && len(m) > limit {
		return nil, fmt.Sprintf("a mesh of %d ranks needs more queue pairs than there are", len(m))
	}
	fewest := len(m[0][1])
	for i, row := range m {
		for j, names := range row {
			if i == j {
				continue
			}
			if len(names) == 0 {
				return nil, fmt.Sprintf("ranks %d and %d have no cable", min(i, j), max(i, j))
			}
			fewest = min(fewest, len(names))
		}
	}
	return &Topology{Rails: fewest}, ""
}

// ring is the ring with the most rails; among those the order of the ranks if it
// is one, else the first in the order of numbers. nil if there is none.
func (m Matrix) ring() *Topology {
	order := make([]int, len(m))
	for i := range order {
		order[i] = i
	}
	best := m.ringRails(order)
	found := append([]int(nil), order...)
	if len(m) <= MaxSearch {
		m.search([]int{0}, func(way []int) {
			if r := m.ringRails(way); r > best {
				best = r
				found = append([]int(nil), way...)
			}
		})
	}
	if best == 0 {
		return nil
	}
	return &Topology{Ring: found, Rails: best}
}

// ringRails is the fewest cables of neighbours in the order, 0 if it is no ring.
func (m Matrix) ringRails(order []int) int {
	fewest := 1 << 30
	for i, r := range order {
		fewest = min(fewest, len(m[r][order[(i+1)%len(order)]]))
	}
	return fewest
}

// search calls found for every order of the ranks that begins with way.
func (m Matrix) search(way []int, found func(way []int)) {
	if len(way) == len(m) {
		found(way)
		return
	}
	for r := range m {
		used := false
		for _, x := range way {
			used = used || x == r
		}
		if !used && len(m[way[len(way)-1]][r]) > 0 {
			m.search(append(way[:len(way):len(way)], r), found)
		}
	}
}

// neither says why ranks form neither ring nor mesh, by the rank that has the
// fewest neighbours.
func (m Matrix) neither(hole string) *Problem {
	neighbours := make([]int, len(m))
	worst := make([]int, len(m))
	for i, row := range m {
		worst[i] = i
		for _, names := range row {
			if len(names) > 0 {
				neighbours[i]++
			}
		}
	}
	sort.SliceStable(worst, func(a, b int) bool { return neighbours[worst[a]] < neighbours[worst[b]] })
	i := worst[0]
	return problem(i, -1, "join every rank to two others so that the cables close a ring, or all to all",
		"neither a ring nor a mesh: rank %d has cables to %d others, and %s", i, neighbours[i], hole)
}

// Trim leaves as many rails in each cell as the topology uses, the first ones,
// and none between ranks that are no neighbours. The matrix must be paired
// before: which rails are the first is then the same on both sides.
func (m Matrix) Trim(t Topology) Matrix {
	c := m.Clone()
	near := map[[2]int]bool{}
	for k, r := range t.Ring {
		next := t.Ring[(k+1)%len(t.Ring)]
		near[[2]int{r, next}], near[[2]int{next, r}] = true, true
	}
	for i, row := range c {
		for j := range row {
			if !t.Mesh() && !near[[2]int{i, j}] {
				row[j] = nil
				continue
			}
			row[j] = row[j][:min(len(row[j]), t.Rails)]
		}
	}
	return c
}

// Lookup finds a variable of the environment, like os.LookupEnv.
type Lookup func(name string) (value string, found bool)

// Path is the file that JACCL_IBV_DEVICES, or else MLX_IBV_DEVICES, names; "" if
// neither is set.
func Path(lookup Lookup) string {
	for _, name := range []string{"JACCL_IBV_DEVICES", "MLX_IBV_DEVICES"} {
		if v, ok := lookup(name); ok && v != "" {
			return v
		}
	}
	return ""
}

// RingWanted tells whether JACCL_RING or MLX_JACCL_RING is there. As with JACCL
// the presence counts, not the value: "0" and "" want the ring too.
func RingWanted(lookup Lookup) bool {
	_, a := lookup("JACCL_RING")
	_, b := lookup("MLX_JACCL_RING")
	return a || b
}
