package matrix

import (
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
)

func parsed(t *testing.T, text string) Matrix {
	t.Helper()
	m, err := Parse("m.json", []byte(text))
	require.NoError(t, err)
	return m
}

func TestParse(t *testing.T) {
	m := parsed(t, `[[null,["rdma_en6","rdma_en7"]],[["rdma_en7","rdma_en6"],[]]]`)
	require.Equal(t, Matrix{{nil, {"rdma_en6", "rdma_en7"}}, {{"rdma_en7", "rdma_en6"}, nil}}, m)
	require.Equal(t, "[\n  [null, [\"rdma_en6\",\"rdma_en7\"]],\n  [[\"rdma_en7\",\"rdma_en6\"], null]\n]\n", string(m.Format()))
	require.Equal(t, []string{"rdma_en6", "rdma_en7"}, m.Devices(0))
}

// TestProblems: every error names file, row and column, and a cure.
func TestProblems(t *testing.T) {
	for _, c := range []struct{ text, where, what, cure string }{
		{`{}`, "m.json: ", "not a JSON array", "write N rows"},
		{`null`, "m.json: ", "not a JSON array", "write N rows"},
		{`[[null,"a"],["b",null]] []`, "m.json: ", "text follows", "end the file"},
		{`[[null,"a"],"b"]`, "row 1: ", "not an array of cells", "write N rows"},
		{`[[null,"a"],[7,null]]`, "row 1, column 0: ", "neither null, string nor array", `write null, "device"`},
		{`[[null,["a",1]],["b",null]]`, "row 0, column 1: ", "elements that are not strings", "write null"},
		{`[[null]]`, "m.json: ", "1 rows", "a row for each rank"},
		{`[[null,"a"],["b",null],["c",null]]`, "row 0: ", "2 cells in a matrix of 3 rows", "give every row a cell"},
		{`[[null,"a"],["b","c"]]`, "row 1, column 1: ", `the diagonal names ["c"]`, "write null"},
		{`[[null,""],["b",null]]`, "row 0, column 1: ", "an empty name", "leave it out"},
		{`[[null,["a","a"]],[["b","c"],null]]`, "row 0, column 1: ", `"a" twice`, "each device once"},
		{`[[null,"a","a"],["b",null,"c"],["d","e",null]]`, "row 0, column 2: ", `"a" leads to rank 1 as well as to rank 2`, "network is switched"},
		{`[[null,["a","b"]],["c",null]]`, "row 1, column 0: ", `1 devices ["c"], but rank 0 has 2`, "as many devices as in row 0, column 1"},
		{`[[null,["a","b","c","d","e"]],[["a","b","c","d","e"],null]]`, "row 0, column 1: ", "5 devices", "at most 4"},
	} {
		m, err := Parse("m.json", []byte(c.text))
		if err == nil {
			err = m.Check("m.json", Rules{})
		}
		require.ErrorIs(t, err, distributed.ErrConfig, c.text)
		for _, s := range []string{"m.json", c.where, c.what, c.cure} {
			require.ErrorContains(t, err, s, c.text)
		}
	}
	_, err := Parse("big", []byte(strings.Repeat(" ", MaxFile+1)))
	require.ErrorContains(t, err, "more than")
	require.NoError(t, parsed(t, `[[null,"a","a"],["b",null,"b"],["d","d",null]]`).Check("", Rules{Switched: true}))
	require.NoError(t, parsed(t, `[[null,["a","b"]],["c",null]]`).Check("", Rules{Normalize: true}))
}

// network makes a matrix with the given number of rails for each pair.
func network(n int, rails map[[2]int]int) Matrix {
	m := make(Matrix, n)
	for i := range m {
		m[i] = make([][]string, n)
	}
	name := func(r int) string {
		used := 0
		for _, names := range m[r] {
			used += len(names)
		}
		return "rdma_en" + string(rune('a'+used))
	}
	for i := range n {
		for j := i + 1; j < n; j++ {
			for range rails[[2]int{i, j}] {
				a, b := name(i), name(j)
				m[i][j] = append(m[i][j], a)
				m[j][i] = append(m[j][i], b)
			}
		}
	}
	return m
}

func full(n, rails int) map[[2]int]int {
	all := map[[2]int]int{}
	for i := range n {
		for j := i + 1; j < n; j++ {
			all[[2]int{i, j}] = rails
		}
	}
	return all
}

func around(order []int, rails int) map[[2]int]int {
	all := map[[2]int]int{}
	for k, a := range order {
		b := order[(k+1)%len(order)]
		all[[2]int{min(a, b), max(a, b)}] = rails
	}
	return all
}

// with returns rails with some pairs changed.
func with(rails, changed map[[2]int]int) map[[2]int]int {
	all := maps.Clone(rails)
	maps.Copy(all, changed)
	return all
}

func TestChoose(t *testing.T) {
	cheapMesh := Preference{Cost: func(x Topology) int64 { return int64(len(x.Ring)) * 1_000_000 }}
	cheapRing := Preference{Cost: func(x Topology) int64 { return 8_000_000 - int64(len(x.Ring))*1_000_000 }}
	same := Preference{Cost: func(Topology) int64 { return 7000 }}
	thinRing := Preference{Cost: func(x Topology) int64 { return 8_000_000 - int64(len(x.Ring))*1_000_000 + int64(x.Rails) }}
	neighbours := around([]int{0, 1, 2, 3}, 2)
	for _, c := range []struct {
		name       string
		n          int
		rails      map[[2]int]int
		preference Preference
		ring       []int
		use        string
		why        string
	}{
		{"a pair", 2, full(2, 1), Preference{}, nil, "1", "mesh: all ranks are connected"},
		{"a pair with three cables", 2, full(2, 3), cheapRing, nil, "3", "mesh: all ranks are connected"},
		{"a mesh", 4, full(4, 1), Preference{}, nil, "1", "all ranks are connected"},
		{"a mesh, ring requested", 4, full(4, 1), Preference{Ring: true}, []int{0, 1, 2, 3}, "1", "requested"},
		{"a mesh by cost", 4, full(4, 1), cheapMesh, nil, "1", "mesh: estimated 0s, the ring 4ms"},
		{"a mesh and a ring that cost the same", 4, full(4, 1), same, nil, "1", "mesh: estimated 7µs, the ring 7µs"},
		{"a ring by cost", 4, full(4, 1), cheapRing, []int{0, 1, 2, 3}, "1", "ring: estimated 4ms, the mesh 8ms"},
		{"a ring", 4, neighbours, Preference{}, []int{0, 1, 2, 3}, "2", "ranks 0 and 2 have no cable"},
		{"a ring in another order", 5, around([]int{0, 3, 1, 4, 2}, 2), Preference{}, []int{0, 2, 4, 1, 3}, "2", "have no cable"},
		{"a ring of eight in another order", 8, around([]int{0, 5, 2, 7, 4, 1, 6, 3}, 1), Preference{}, []int{0, 3, 6, 1, 4, 7, 2, 5}, "1", ""},
		{"three ranks, one pair with one cable", 3, with(full(3, 2), map[[2]int]int{{1, 2}: 1}), cheapRing, nil, "1 to 2", "mesh"},
		{"four ranks with an extra cable", 4, with(full(4, 1), map[[2]int]int{{0, 1}: 2}), cheapMesh, nil, "1 to 2", "mesh"},
		{"the same, ring requested", 4, with(full(4, 1), map[[2]int]int{{0, 1}: 2}), Preference{Ring: true}, []int{0, 1, 2, 3}, "1 to 2", "requested"},
		{"the extra cable is no neighbour's", 4, with(full(4, 1), map[[2]int]int{{0, 2}: 3}), cheapRing, []int{0, 1, 2, 3}, "1", "ring: estimated"},
		{"an uneven ring", 4, with(neighbours, map[[2]int]int{{0, 3}: 4}), Preference{}, []int{0, 1, 2, 3}, "2 to 4", "have no cable"},
		{"the ring with the most rails", 4, with(full(4, 1), around([]int{0, 2, 1, 3}, 2)), cheapRing, []int{0, 2, 1, 3}, "2", "ring"},
		{"the ring that costs less", 4, with(full(4, 1), around([]int{0, 2, 1, 3}, 2)), thinRing, []int{0, 1, 2, 3}, "1 to 2", "ring"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := network(c.n, c.rails)
			require.NoError(t, m.Check("", Rules{}))
			got, err := m.Choose(c.preference)
			require.NoError(t, err)
			require.Equal(t, c.ring, got.Ring)
			require.Equal(t, c.use, got.Count())
			require.Equal(t, c.ring == nil, got.Mesh())
			require.Contains(t, got.Why, c.why)
			trimmed := m.Trim(got)
			for i := range trimmed {
				for j := range trimmed {
					n := len(trimmed[i][j])
					require.True(t, n == 0 || n == len(m[i][j]), "all cables of a pair or none")
					if got.Cables != nil {
						require.Equal(t, got.Cables[i][j], n)
					} else if n > 0 {
						require.Equal(t, got.Rails, n)
					}
				}
			}
			again, err := trimmed.Choose(c.preference)
			require.NoError(t, err)
			again.Why = got.Why
			require.Equal(t, got, again)
		})
	}
	line := map[[2]int]int{{0, 1}: 1, {1, 2}: 1, {2, 3}: 1}
	_, err := network(4, line).Choose(Preference{})
	require.ErrorIs(t, err, distributed.ErrConfig)
	require.ErrorContains(t, err, "rank 0 has cables to 1 others")
	require.ErrorContains(t, err, "join every rank to two others")
}

func TestEnvironment(t *testing.T) {
	env := func(vars map[string]string) Lookup {
		return func(name string) (string, bool) { v, ok := vars[name]; return v, ok }
	}
	require.Equal(t, "a", Path(env(map[string]string{"JACCL_IBV_DEVICES": "a", "MLX_IBV_DEVICES": "b"})))
	require.Equal(t, "b", Path(env(map[string]string{"MLX_IBV_DEVICES": "b"})))
	require.Empty(t, Path(env(nil)))
	require.True(t, RingWanted(env(map[string]string{"JACCL_RING": ""})))
	require.True(t, RingWanted(env(map[string]string{"MLX_JACCL_RING": "0"})))
	require.False(t, RingWanted(env(nil)))
}
