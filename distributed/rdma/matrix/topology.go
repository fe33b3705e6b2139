package matrix

import (
	"fmt"
	"sort"
)

// Topology says how the ranks of a group are connected.
type Topology struct {
	// Ring lists the ranks in the order of the cables; nil for a mesh.
	Ring []int
	// Rails is how many cables each connected pair uses, which is the smallest
	// number that any pair has.
	Rails int
	// Why is the reason for this topology, for the log.
	Why string
}

// Mesh reports whether every rank is connected to every other.
func (t Topology) Mesh() bool { return t.Ring == nil }

// Preference says which shape Choose prefers if several are possible.
type Preference struct {
	// Ring prefers a ring if one is possible; see RingWanted.
	Ring bool
	// Cost estimates an operation of the size that matters most, in any unit. It
	// decides if a ring and a mesh are possible and Ring is not set; nil prefers
	// the mesh.
	Cost func(t Topology) int64
}

// maxSearch is the number of ranks up to which all orders of a ring are tried.
const maxSearch = 8

// Choose decides between ring and mesh, and on the order of the ring. The matrix
// must have passed Check. If both are possible, it chooses the ring if p.Ring is
// set or a pair has more than one cable, otherwise the cheaper of the two. If
// neither is possible, it returns a *Problem that names a rank.
func (m Matrix) Choose(p Preference) (Topology, error) {
	mesh, hole := m.mesh()
	ring := m.ring()
	several := m.several()
	switch {
	case ring == nil && mesh == nil:
		return Topology{}, m.neither(hole)
	case mesh == nil:
		ring.Why = fmt.Sprintf("ring: %s", hole)
		return *ring, nil
	case ring == nil:
		mesh.Why = "mesh: no ring is possible"
		return *mesh, nil
	case p.Ring:
		ring.Why = "ring: requested"
		return *ring, nil
	case several && ring.Rails > mesh.Rails:
		ring.Why = fmt.Sprintf("ring: uses %d cables of a pair, a mesh %d", ring.Rails, mesh.Rails)
		return *ring, nil
	case several:
		ring.Why = "ring: some pairs have several cables"
		return *ring, nil
	case p.Cost != nil:
		a, b := p.Cost(*mesh), p.Cost(*ring)
		if b < a {
			ring.Why = fmt.Sprintf("ring: costs %d, the mesh %d", b, a)
			return *ring, nil
		}
		mesh.Why = fmt.Sprintf("mesh: costs %d, the ring %d", a, b)
		return *mesh, nil
	}
	mesh.Why = "mesh: all ranks are connected"
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

// mesh returns the mesh, or says which ranks have no cable.
func (m Matrix) mesh() (*Topology, string) {
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

// ring returns the ring with the most rails, nil if no ring is possible. Among
// several, it prefers the order of the ranks, then the lexicographically first.
func (m Matrix) ring() *Topology {
	order := make([]int, len(m))
	for i := range order {
		order[i] = i
	}
	best := m.ringRails(order)
	found := append([]int(nil), order...)
	if len(m) <= maxSearch {
		m.search([]int{0}, func(path []int) {
			if r := m.ringRails(path); r > best {
				best = r
				found = append([]int(nil), path...)
			}
		})
	}
	if best == 0 {
		return nil
	}
	return &Topology{Ring: found, Rails: best}
}

// ringRails returns the smallest number of cables between neighbours in the order,
// 0 if it is not a ring.
func (m Matrix) ringRails(order []int) int {
	fewest := 1 << 30
	for i, r := range order {
		fewest = min(fewest, len(m[r][order[(i+1)%len(order)]]))
	}
	return fewest
}

// search calls found for every path over all ranks that begins with path.
func (m Matrix) search(path []int, found func(path []int)) {
	if len(path) == len(m) {
		found(path)
		return
	}
	for r := range m {
		used := false
		for _, x := range path {
			used = used || x == r
		}
		if !used && len(m[path[len(path)-1]][r]) > 0 {
			m.search(append(path[:len(path):len(path)], r), found)
		}
	}
}

// neither explains why the ranks form neither a ring nor a mesh; it names the rank
// with the fewest neighbours.
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

// Trim returns a matrix with only the rails that the topology uses: the first
// t.Rails of each cell, and none between ranks that are not neighbours. The matrix
// must come from Pair, so that the first rails are the same on both sides.
func (m Matrix) Trim(t Topology) Matrix {
	c := m.Clone()
	neighbours := map[[2]int]bool{}
	for k, r := range t.Ring {
		next := t.Ring[(k+1)%len(t.Ring)]
		neighbours[[2]int{r, next}], neighbours[[2]int{next, r}] = true, true
	}
	for i, row := range c {
		for j := range row {
			if !t.Mesh() && !neighbours[[2]int{i, j}] {
				row[j] = nil
				continue
			}
			row[j] = row[j][:min(len(row[j]), t.Rails)]
		}
	}
	return c
}

// Lookup looks up an environment variable, like os.LookupEnv.
type Lookup func(name string) (value string, found bool)

// Path returns the file named by JACCL_IBV_DEVICES, otherwise by MLX_IBV_DEVICES;
// "" if neither is set.
func Path(lookup Lookup) string {
	for _, name := range []string{"JACCL_IBV_DEVICES", "MLX_IBV_DEVICES"} {
		if v, ok := lookup(name); ok && v != "" {
			return v
		}
	}
	return ""
}

// RingWanted reports whether JACCL_RING or MLX_JACCL_RING is set. As in JACCL only
// the presence counts, so "0" and "" request the ring, too.
func RingWanted(lookup Lookup) bool {
	_, a := lookup("JACCL_RING")
	_, b := lookup("MLX_JACCL_RING")
	return a || b
}
