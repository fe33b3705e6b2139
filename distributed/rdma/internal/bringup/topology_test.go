package bringup

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/distributed/rdma/matrix"
	"ringmaster/distributed/rdma/plan"
	"ringmaster/internal/testenv"
)

// cabled is a matrix with a number of cables for each pair.
func cabled(n int, cables func(a, b int) int) matrix.Matrix {
	m := make(matrix.Matrix, n)
	for a := range m {
		m[a] = make([][]string, n)
		for b := range n {
			for k := range max(0, cables(min(a, b), max(a, b))) {
				if a != b {
					m[a][b] = append(m[a][b], fmt.Sprintf("r%dto%d_%d", a, b, k))
				}
			}
		}
	}
	return m
}

// coster is a bring-up of n ranks as far as Choose needs it.
func coster(n int) *bringup {
	b := &bringup{Config: Config{Link: distributed.Link{Size: n}}, tagged: true}
	b.format = wide(plan.MaxClass)
	return b
}

// TestExtraCableKeepsTheMesh: up to eight ranks, further cables between some pairs
// of a mesh do not make it a ring, which takes several hops.
func TestExtraCableKeepsTheMesh(t *testing.T) {
	for n := 4; n <= 8; n++ {
		for name, cables := range map[string]func(a, b int) int{
			"one pair":            func(a, b int) int { return 1 + one(a == 0 && b == 1) },
			"a pair across":       func(a, b int) int { return 1 + one(a == 0 && b == n/2) },
			"a chain":             func(a, b int) int { return 1 + one(b == a+1) },
			"all neighbours":      func(a, b int) int { return 1 + one(b == a+1 || a == 0 && b == n-1) },
			"rank 0 to all":       func(a, _ int) int { return 1 + one(a == 0) },
			"two, and one of one": func(a, b int) int { return 2 - one(a == 1 && b == 2) },
		} {
			topo, err := cabled(n, cables).Choose(matrix.Preference{Cost: coster(n).cost()})
			require.NoError(t, err)
			require.True(t, topo.Mesh(), "%d ranks, %s: %s", n, name, topo.Why)
			require.Equal(t, cables(0, 1), topo.Cables[0][1], name)
			t.Logf("%d ranks, %s: %s", n, name, topo.Why)
		}
	}
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}

// TestChosenShapeIsCheapest: among the mesh and every order of a ring, with any
// numbers of cables, none costs less than the chosen one.
func TestChosenShapeIsCheapest(t *testing.T) {
	rng := rand.New(rand.NewPCG(40, 4))
	most, each := 5, 6
	if testenv.Rest(t, testenv.Full, "six ranks, and more cablings") {
		most, each = 6, 15
	}
	meshes, rings := 0, 0
	for n := 4; n <= most; n++ {
		for range each {
			count := map[[2]int]int{}
			holes := rng.IntN(2) // half of the matrices have pairs without cable
			m := cabled(n, func(a, b int) int {
				k, ok := count[[2]int{a, b}]
				if !ok {
					k = min(4, 1+rng.IntN(5)) - holes*rng.IntN(2)
					count[[2]int{a, b}] = k
				}
				return k
			})
			cost := coster(n).cost()
			got, err := m.Choose(matrix.Preference{Cost: cost})
			others := everyShape(m)
			require.Equal(t, len(others) == 0, err != nil, "an error where no shape is possible")
			if err != nil {
				continue
			}
			if got.Mesh() {
				meshes++
			} else {
				rings++
			}
			for _, x := range others {
				// The order of the ring changes which message is first: some percent.
				require.LessOrEqual(t, cost(got), cost(x)*21/20, "chose %+v, %+v costs less: cables %v", got, x, count)
			}
		}
	}
	require.Positive(t, meshes)
	require.Positive(t, rings)
	t.Logf("%d meshes, %d rings", meshes, rings)
}

// everyShape lists the mesh and the rings in every order that a matrix allows.
func everyShape(m matrix.Matrix) []matrix.Topology {
	n := len(m)
	var all []matrix.Topology
	add := func(ring []int) {
		t := matrix.Topology{Ring: ring, Cables: make([][]int, n)}
		for a := range n {
			t.Cables[a] = make([]int, n)
		}
		join := func(a, b int) bool {
			k := len(m[a][b])
			t.Cables[a][b], t.Cables[b][a] = k, k
			if t.Rails == 0 || k < t.Rails {
				t.Rails = k
			}
			return k > 0
		}
		for a := range n {
			if ring != nil && !join(ring[a], ring[(a+1)%n]) {
				return
			}
			for b := range a {
				if ring == nil && !join(a, b) {
					return
				}
			}
		}
		all = append(all, t)
	}
	add(nil)
	var extend func(path []int)
	extend = func(path []int) {
		if len(path) == n && path[1] < path[n-1] { // the same ring backward is skipped
			add(path)
		}
		for r := range n {
			if !slices.Contains(path, r) {
				extend(append(slices.Clone(path), r))
			}
		}
	}
	extend([]int{0})
	return all
}
