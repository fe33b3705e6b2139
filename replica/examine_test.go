package replica

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/model"
)

// owners lists which experts each rank has examined.
func owners(found []Finding) (out [][]int) {
	for _, f := range found {
		var experts []int
		for _, s := range f.Sums {
			experts = append(experts, s.Expert)
		}
		out = append(out, experts)
	}
	return out
}

// examined returns the findings of a task that succeeds.
func examined(t *testing.T, l *Leader, task Task) []Finding {
	t.Helper()
	found, _, err := l.Examine(task)
	require.NoError(t, err)
	return found
}

// TestExamine: the owner and the next rank examine experts, all ranks examine everything
// else, and running sequences are not affected.
func TestExamine(t *testing.T) {
	inCluster(t, 3, func(t *testing.T, c *fakeCluster, l *Leader) {
		e, placement, err := l.Extent()
		require.NoError(t, err)
		require.Equal(t, model.Extent{Layers: []int{0, 1}, Experts: 12, Blocks: 3}, e)
		require.Len(t, placement, 3)
		task := Task{Piece: model.Piece{Layer: 1, From: 2, To: 9, Seed: 5}}
		found, epoch, err := l.Examine(task) // the first work of the epoch
		require.NoError(t, err)
		require.EqualValues(t, 1, epoch)
		require.Equal(t, [][]int{{2, 3, 8}, {4, 5, 6, 7, 2, 3}, {8, 4, 5, 6, 7}}, owners(found))
		want := mustRun(t, l, entry(1, 0, model.WantLast, 1, 2, 3))
		task.Everyone = true
		found = examined(t, l, task)
		for _, f := range found {
			require.Len(t, f.Sums, 7)
			require.Equal(t, found[0].Sums, f.Sums)
		}
		found = examined(t, l, Task{Piece: model.Piece{Layer: -1, From: 1, To: 3}})
		require.Equal(t, [][]int{{1, 2}, {1, 2}, {1, 2}}, owners(found))
		mustRun(t, l, entry(1, 3, model.WantLast, 4))
		require.Equal(t, want, mustRun(t, l, entry(2, 0, model.WantLast, 1, 2, 3)))

		c.ranks[1].onExamine = func(model.Piece) error { return errors.New("no memory for that") }
		found = examined(t, l, task)
		require.Equal(t, "no memory for that", found[1].Error)
		require.Empty(t, found[0].Error)
		require.Len(t, found[2].Sums, 7)
		mustRun(t, l, entry(1, 4, model.WantLast, 5))
	})
}

// TestTraffic: messages between every two ranks arrive as they were sent, and are timed.
func TestTraffic(t *testing.T) {
	inCluster(t, 3, func(t *testing.T, _ *fakeCluster, l *Leader) {
		for _, x := range []Traffic{{From: 0, To: 1, Bytes: 1000, Messages: 20, Seed: 9}, {From: 2, To: 1, Bytes: 1, Messages: 1}, {From: 1, To: 0, Bytes: 8, Messages: 5, Echo: true}} {
			found := examined(t, l, Task{Links: &x})
			for r, f := range found {
				require.Equal(t, r, f.Rank)
				require.Zero(t, f.Corrupt)
			}
			require.Len(t, found[x.From].Trips, map[bool]int{true: x.Messages}[x.Echo])
			mustRun(t, l, entry(1, l.Len(1), model.WantLast, 4))
		}
	})
}

// TestCorruptMessages: every different byte is counted, and a message in the place of
// another counts as corrupt.
func TestCorruptMessages(t *testing.T) {
	c := newContents(Traffic{Bytes: 4096, Seed: 3})
	require.Zero(t, c.corrupt(c.message(7), 7))
	bad := append([]byte(nil), c.message(7)...)
	bad[0], bad[4095] = bad[0]^1, bad[4095]^128
	require.EqualValues(t, 2, c.corrupt(bad, 7))
	require.Greater(t, c.corrupt(c.message(8), 7), int64(3900))
	require.Greater(t, newContents(Traffic{Bytes: 4096, Seed: 4}).corrupt(c.message(7), 7), int64(3900))
}

// TestTasksThatAreRefused: no rank begins an invalid task.
func TestTasksThatAreRefused(t *testing.T) {
	inCluster(t, 2, func(t *testing.T, _ *fakeCluster, l *Leader) {
		for want, task := range map[string]Task{
			"the invalid piece":                {Piece: model.Piece{To: model.MostPiece + 1}},
			"rank 0 to rank 2 in a group of 2": {Links: &Traffic{To: 2, Bytes: 1, Messages: 1}},
			"from rank 1 to rank 1":            {Links: &Traffic{From: 1, To: 1, Bytes: 1, Messages: 1}},
			"1 messages of 2097152 bytes":      {Links: &Traffic{To: 1, Bytes: 2 << 20, Messages: 1}},
			"0 messages":                       {Links: &Traffic{To: 1, Bytes: 1}},
			"300 round trips":                  {Links: &Traffic{To: 1, Bytes: 1, Messages: 300, Echo: true}},
		} {
			_, _, err := l.Examine(task)
			require.ErrorContains(t, err, want)
		}
		mustRun(t, l, entry(1, 0, model.WantLast, 4))
	})
}

// TestExamineWithoutEpoch: while the group re-forms an examination fails, and a rank that
// is lost meanwhile ends the examination but not the sequences.
func TestExamineWithoutEpoch(t *testing.T) {
	inCluster(t, 2, func(t *testing.T, c *fakeCluster, l *Leader) {
		mustRun(t, l, entry(1, 0, model.WantLast, 4))
		lost := errors.New("rank 1 is lost")
		c.recovering = true
		c.ranks[1].onExamine = func(model.Piece) error { c.end(lost); return nil }
		_, _, err := l.Examine(Task{Piece: model.Piece{To: 8}})
		require.ErrorIs(t, err, model.ErrRecovering)
		require.ErrorContains(t, err, "rank 1 is lost")
		_, _, err = l.Examine(Task{Piece: model.Piece{To: 8}})
		require.ErrorIs(t, err, model.ErrRecovering)
		_, _, err = l.Extent()
		require.ErrorIs(t, err, model.ErrRecovering)
		c.ranks[1].onExamine = nil
		require.NoError(t, c.form())
		mustRun(t, l, entry(1, 1, model.WantLast, 5))
		_, epoch, err := l.Examine(Task{Piece: model.Piece{To: 8}})
		require.NoError(t, err)
		require.EqualValues(t, 2, epoch)
	})
}
