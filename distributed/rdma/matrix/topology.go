package matrix

import (
	"fmt"
	"slices"
	"sort"
	"strconv"
	"time"
)

// Topology says how the ranks of a group are connected.
type Topology struct {
	// Ring lists the ranks in the order of the cables; nil for a mesh.
	Ring []int
	// Rails is the smallest number of cables that a connected pair has.
	Rails int
	// Cables has the number of cables of each pair, [rank][rank], 0 for a pair that
	// is not connected; nil if every connected pair has Rails.
	Cables [][]int
	// Why is the reason for this topology, for the log.
	Why string
}

// Mesh reports whether every rank is connected to every other.
func (t Topology) Mesh() bool { return t.Ring == nil }

// Most returns the largest number of cables that a connected pair has.
func (t Topology) Most() int {
	most := t.Rails
	for _, row := range t.Cables {
		most = max(most, slices.Max(row))
	}
	return most
}

// Count says how many cables the connected pairs have: "2", "1 to 2".
func (t Topology) Count() string {
	if most := t.Most(); most > t.Rails {
		return fmt.Sprintf("%d to %d", t.Rails, most)
	}
	return strconv.Itoa(t.Rails)
}

// Preference says which shape Choose prefers if several are possible.
type Preference struct {
	// Ring prefers a ring if one is possible; see RingWanted.
	Ring bool
	// Cost estimates the exchanges that matter, in nanoseconds. It decides between
	// rings, and if a ring and a mesh are possible and Ring is not set; nil prefers
	// the mesh.
	Cost func(t Topology) int64
}

// maxSearch is the number of ranks up to which all orders of a ring are tried.
const maxSearch = 8

// Choose decides between ring and mesh, and on the order of the ring. The matrix
// must have passed Check. If both are possible, it chooses the ring if p.Ring is
// set, otherwise the cheaper of the two, the mesh if they cost the same. If neither
// is possible, it returns a *Problem that names a rank.
func (m Matrix) Choose(p Preference) (Topology, error) {
	mesh, hole := m.mesh()
	ring := cheapest(m.rings(), p.Cost)
	switch {
	case ring == nil: // where a mesh is possible, a ring is too
		return Topology{}, m.neither(hole)
	case mesh == nil:
		ring.Why = fmt.Sprintf("ring: %s", hole)
		return *ring, nil
	case p.Ring:
		ring.Why = "ring: requested"
		return *ring, nil
	case p.Cost == nil || len(m) <= 3: // a ring of three connects the same pairs
		mesh.Why = "mesh: all ranks are connected"
		return *mesh, nil
	}
	a, b := p.Cost(*mesh), p.Cost(*ring)
	if b < a {
		ring.Why = fmt.Sprintf("ring: estimated %v, the mesh %v", rough(b), rough(a))
		return *ring, nil
	}
	mesh.Why = fmt.Sprintf("mesh: estimated %v, the ring %v", rough(a), rough(b))
	return *mesh, nil
}

// rough returns a cost as a duration without meaningless digits.
func rough(ns int64) time.Duration { return time.Duration(ns).Round(time.Microsecond) }

// cheapest returns the first topology of those that cost least, nil if there is
// none. Without a cost it is the first.
func cheapest(all []Topology, cost func(t Topology) int64) *Topology {
	var best *Topology
	var least int64
	for i := range all {
		if best == nil {
			best = &all[i]
			if cost == nil || len(all) == 1 {
				return best
			}
			least = cost(*best)
			continue
		}
		if c := cost(all[i]); c < least {
			best, least = &all[i], c
		}
	}
	return best
}

// mesh returns the mesh, or says which ranks have no cable.
func (m Matrix) mesh() (*Topology, string) {
	for i, row := range m {
		for j, names := range row {
			if i != j && len(names) == 0 {
				return nil, fmt.Sprintf("ranks %d and %d have no cable", min(i, j), max(i, j))
			}
		}
	}
	t := m.topology(nil)
	return &t, ""
}

// topology returns the mesh, or the ring in an order, with the cables of its pairs.
func (m Matrix) topology(ring []int) Topology {
	t := Topology{Ring: ring}
	connected := t.connected(len(m))
	cables := make([][]int, len(m))
	most := 0
	for i, row := range m {
		cables[i] = make([]int, len(m))
		for j, names := range row {
			if n := len(names); connected[i][j] {
				cables[i][j] = n
				most = max(most, n)
				if t.Rails == 0 || n < t.Rails {
					t.Rails = n
				}
			}
		}
	}
	if most > t.Rails {
		t.Cables = cables
	}
	return t
}

// connected says which of n ranks the topology connects, [rank][rank].
func (t Topology) connected(n int) [][]bool {
	all := make([][]bool, n)
	for i := range all {
		all[i] = make([]bool, n)
		for j := range all[i] {
			all[i][j] = t.Mesh() && i != j
		}
	}
	for k, r := range t.Ring {
		next := t.Ring[(k+1)%len(t.Ring)]
		all[r][next], all[next][r] = true, true
	}
	return all
}

// rings returns the rings that are worth comparing: the one with the most rails,
// and the one in the order of the ranks if it has fewer, because sums can then pass
// from rank to rank in their order. Among several with as many rails it takes the
// order of the ranks, then the lexicographically first. It returns nil if no ring is
// possible.
func (m Matrix) rings() []Topology {
	order := make([]int, len(m))
	for i := range order {
		order[i] = i
	}
	straight := m.ringRails(order)
	best, found := straight, order
	if len(m) <= maxSearch {
		m.search([]int{0}, func(path []int) {
			if r := m.ringRails(path); r > best {
				best = r
				found = slices.Clone(path)
			}
		})
	}
	if best == 0 {
		return nil
	}
	all := []Topology{m.topology(found)}
	if straight > 0 && straight < best {
		all = append(all, m.topology(order))
	}
	return all
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

// Trim returns a matrix with only the rails that the topology uses, which are all
// cables of the pairs that it connects.
func (m Matrix) Trim(t Topology) Matrix {
	c := m.Clone()
	connected := t.connected(len(m))
	for i, row := range c {
		for j := range row {
			if !connected[i][j] {
				row[j] = nil
			}
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
