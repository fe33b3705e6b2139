package parallel_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/distributed/grouptest"
	"ringmaster/distributed/memory"
	"ringmaster/kernels"
	"ringmaster/kernels/cpu"
	"ringmaster/parallel"
)

// weighted returns a placement of ranks with the given weights that divides rows.
func weighted(t *testing.T, from int, weights ...float64) parallel.Placement {
	p, err := parallel.Everything(sizes, weights)
	require.NoError(t, err)
	return p.DivideRows(from)
}

// TestCut: the rows of each rank, and the steps that are not divided.
func TestCut(t *testing.T) {
	for _, c := range []struct {
		from    int
		weights []float64
		rows    int
		want    []parallel.Range
	}{
		{0, []float64{1, 1}, 512, nil},
		{16, []float64{1, 1}, 15, nil},
		{16, []float64{1, 1}, 16, []parallel.Range{{0, 8}, {8, 16}}},
		{16, []float64{3}, 16, nil},
		{1, []float64{1, 1, 1}, 2, nil},
		{1, []float64{1, 1, 1}, 3, []parallel.Range{{0, 1}, {1, 2}, {2, 3}}},
		{1, []float64{3, 1}, 102, []parallel.Range{{0, 76}, {76, 102}}},
		{1, []float64{1, 1e9, 1}, 12, []parallel.Range{{0, 1}, {1, 11}, {11, 12}}},
	} {
		require.Equal(t, c.want, weighted(t, c.from, c.weights...).Cut(c.rows, 1), "%+v", c)
	}
	require.Nil(t, parallel.Placement(nil).Cut(512, 1))
	require.Nil(t, weighted(t, 1, 3, 1).Cut(31, 16))
	require.Equal(t, []parallel.Range{{0, 31}, {31, 52}}, weighted(t, 1, 3, 1).Cut(52, 16), "16 each, and 15 and 5")
	p := weighted(t, 16, 1, 1)
	require.True(t, p.DividesRows())
	require.NoError(t, p.Check(sizes, 2))
	p[1].Rows = 17
	require.ErrorIs(t, p.Check(sizes, 2), distributed.ErrArgument)
	require.ErrorContains(t, p.Check(sizes, 2), "rank 1 divides steps from 17 rows on and rank 0 from 16")
	require.Error(t, weighted(t, -1, 1, 1).Check(sizes, 2))
}

// TestRowGather: rows of one field, of several fields and some of the rows arrive with
// the same bits for any cut; the other rows are unchanged.
func TestRowGather(t *testing.T) {
	const rows, wide, narrow = 20, 5, 2
	cut := weighted(t, 1, 2, 5, 1, 3).Cut(rows, 1)
	kept := []int32{0, 7, 8, 19}
	value := func(round, row, i int) float32 { return float32(1000*round + 10*row + i) }
	for r, err := range grouptest.OnAll(memory.Groups(len(cut)), func(r int, g *distributed.Group) error {
		defer g.Close()
		b, err := cpu.New(1)
		if err != nil {
			return err
		}
		defer b.Close()
		x, _ := kernels.Make[float32](b, rows*wide)
		ids, _ := kernels.Make[int32](b, (rows+3)*narrow)
		gather := parallel.NewRowGather(b, parallel.NewMeter(nil).For("test"))
		gather.Join(g)
		for round := range 3 {
			for i := range x {
				x[i] = -1
			}
			for row := cut[r].Start; row < cut[r].End; row++ {
				for i := range wide {
					x[row*wide+i] = value(round, row, i)
				}
				for i := range narrow {
					ids[row*narrow+i] = int32(value(round, row, i))
				}
			}
			fields := []parallel.Field{parallel.FieldOf(x, wide), parallel.FieldOf(ids, narrow)}
			switch round {
			case 0:
				err = gather.Start(t.Context(), cut, fields...)
			case 1:
				err = gather.Start(t.Context(), cut, fields[0])
			default:
				err = gather.Some(t.Context(), cut, kept, fields...)
			}
			if err == nil && round < 2 {
				err = gather.Finish()
			}
			if err != nil {
				return err
			}
			for row := range rows {
				has := round < 2 || slices.Contains(kept, int32(row)) || row >= cut[r].Start && row < cut[r].End
				want := float32(-1)
				if has {
					want = value(round, row, 1)
				}
				if got := x[row*wide+1]; got != want {
					t.Errorf("rank %d, round %d, row %d: %v, expected %v", r, round, row, got, want)
				}
				if got := ids[row*narrow]; has && round != 1 && got != int32(value(round, row, 0)) {
					t.Errorf("rank %d, round %d, row %d: id %d", r, round, row, got)
				}
			}
		}
		return gather.Some(t.Context(), cut, nil, parallel.FieldOf(x, wide)) // no rank has any of no rows
	}) {
		require.NoError(t, err, "rank %d", r)
	}
}
