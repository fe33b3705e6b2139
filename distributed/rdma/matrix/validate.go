package matrix

import "fmt"

// MaxRails is the maximum number of cables between two ranks. It is JACCL's
// limit.
const MaxRails = 4

// Rules relax what Check requires.
type Rules struct {
	// Normalize allows the two cells of a pair to name different numbers of
	// devices, because Pair leaves out those without a partner.
	Normalize bool
	// Switched allows a device to lead to several ranks, because on a switched
	// InfiniBand or RoCE network every port reaches every other. A Thunderbolt
	// cable leads to one.
	Switched bool
}

// Check returns the first error in the matrix, a *Problem whose File is file, or
// nil.
func (m Matrix) Check(file string, r Rules) error {
	if p := m.check(r); p != nil {
		p.File = file
		return p
	}
	return nil
}

func (m Matrix) check(r Rules) *Problem {
	n := len(m)
	if n < 2 {
		return problem(-1, -1, "write a row for each rank of a group of 2 or more", "%d rows", n)
	}
	for i, row := range m {
		if len(row) != n {
			return problem(i, -1, "give every row a cell for each rank, null for no cable",
				"%d cells in a matrix of %d rows", len(row), n)
		}
	}
	for i, row := range m {
		if len(row[i]) > 0 {
			return problem(i, i, "write null: a rank has no cable to itself", "the diagonal names %q", row[i])
		}
		leads := map[string]int{}
		for j, names := range row {
			if len(names) > MaxRails {
				return problem(i, j, fmt.Sprintf("name at most %d", MaxRails), "%d devices for one pair", len(names))
			}
			within := map[string]bool{}
			for _, d := range names {
				if d == "" {
					return problem(i, j, "name the device or leave it out", "an empty name")
				}
				if within[d] {
					return problem(i, j, "name each device once", "%q twice", d)
				}
				within[d] = true
				if k, ok := leads[d]; ok && !r.Switched {
					return problem(i, j, "name each device for the rank at the far end of its cable, or say that the network is switched",
						"%q leads to rank %d as well as to rank %d", d, k, j)
				}
				leads[d] = j
			}
		}
	}
	for i := range n {
		for j := range i {
			a, b := m[j][i], m[i][j]
			if len(a) != len(b) && !r.Normalize {
				return problem(i, j, fmt.Sprintf("name as many devices as in row %d, column %d", j, i),
					"%d devices %q, but rank %d has %d for the same cables: %q", len(b), b, j, len(a), a)
			}
		}
	}
	return nil
}
