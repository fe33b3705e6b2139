package parallel_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/kernels/cpu"
	"ringmaster/parallel"
)

// noted is a driver whose operations move nothing and are noted.
type noted struct {
	log  *[]string
	fail int // the number of the operation whose Wait fails, 0 for none
}

func (d *noted) Start(op *distributed.Op) error {
	*d.log = append(*d.log, fmt.Sprint("start ", op.Number))
	return nil
}

func (d *noted) Wait(op *distributed.Op) (distributed.Timing, error) {
	*d.log = append(*d.log, fmt.Sprint("wait ", op.Number))
	if int(op.Number) == d.fail {
		return distributed.Timing{}, errors.New("the cable is cut")
	}
	return distributed.Timing{}, nil
}

func (d *noted) Abort(error)                       {}
func (d *noted) Close() error                      { return nil }
func (d *noted) Describe() distributed.Description { return distributed.Description{Kind: "noted"} }
func (d *noted) Child(context.Context, distributed.ChildSpec) (*distributed.Group, error) {
	return nil, distributed.ErrUnavailable
}

// interleave runs two micro-batches with so many exchanges each, which compute before each
// and after the last, up to stop, where one returns an error. It returns what happened.
func interleave(t *testing.T, exchanges [2]int, fail int, stop string) (string, error) {
	var log []string
	l := distributed.Link{Size: 2, GroupID: "test", Addrs: make([]string, 2), Token: make([]byte, 32), OpTimeout: time.Minute}
	g, err := distributed.Form(t.Context(), l, func(context.Context, distributed.Link) (distributed.Driver, error) {
		return &noted{&log, fail}, nil
	})
	require.NoError(t, err)
	defer func() { require.NoError(t, g.Close()) }()
	b, err := cpu.New(1)
	require.NoError(t, err)
	defer func() { require.NoError(t, b.Close()) }()
	meter := parallel.NewMeter(nil)
	first := parallel.NewRowGather(b, meter.For("test"))
	first.Join(g)
	log = log[:0] // of forming the group
	batch := func(name string, rows *parallel.RowGather, exchanges int) func() error {
		return func() error {
			x := make([]float32, 2)
			for n := range exchanges + 1 {
				log = append(log, fmt.Sprint(name, n))
				switch stop {
				case fmt.Sprint(name, n):
					return errors.New("stopped at " + stop)
				case fmt.Sprint("panic ", name, n):
					panic(stop)
				}
				if n == exchanges {
					return nil
				}
				if err := rows.Start(t.Context(), []parallel.Range{{End: 1}, {Start: 1, End: 2}}, parallel.FieldOf(x, 1)); err != nil {
					return err
				}
				if err := rows.Finish(); err != nil {
					return err
				}
			}
			return nil
		}
	}
	err = func() (err error) {
		defer func() {
			if v := recover(); v != nil {
				err = errors.New(v.(string))
			}
		}()
		return meter.Turns().Interleave(batch("A", first, exchanges[0]), batch("B", first.Second(), exchanges[1]))
	}()
	ran := strings.Join(log, ", ")
	if err != nil { // then exchanges are begun and waited for at once again
		return ran, err
	}
	log = log[:0]
	require.NoError(t, batch("C", first, 1)())
	require.Equal(t, []string{"C0", fmt.Sprint("start ", sum(exchanges)+1), fmt.Sprint("wait ", sum(exchanges)+1), "C1"}, log)
	return ran, nil
}

func sum(x [2]int) int { return x[0] + x[1] }

// TestInterleave: one micro-batch computes while an exchange of the other is under way, one
// exchange at a time; the second never computes what comes before its exchange n sooner
// than the first.
func TestInterleave(t *testing.T) {
	for _, c := range []struct {
		exchanges [2]int
		want      string
	}{
		{[2]int{0, 0}, "A0, B0"},
		{[2]int{1, 1}, "A0, start 1, B0, wait 1, start 2, A1, wait 2, B1"},
		{[2]int{2, 2}, "A0, start 1, B0, wait 1, start 2, A1, wait 2, start 3, B1, wait 3, start 4, A2, wait 4, B2"},
		{[2]int{2, 0}, "A0, start 1, B0, wait 1, A1, start 2, wait 2, A2"},
		{[2]int{0, 2}, "A0, B0, start 1, wait 1, B1, start 2, wait 2, B2"},
		{[2]int{1, 3}, "A0, start 1, B0, wait 1, start 2, A1, wait 2, B1, start 3, wait 3, B2, start 4, wait 4, B3"},
	} {
		got, err := interleave(t, c.exchanges, 0, "")
		require.NoError(t, err)
		require.Equal(t, c.want, got)
	}
}

// TestInterleaveFails: the error of one micro-batch ends the other, whose exchange is waited
// for if one is under way; so does a panic.
func TestInterleaveFails(t *testing.T) {
	for _, c := range []struct {
		stop, want string
	}{
		{"A0", "A0"},
		{"B0", "A0, start 1, B0, wait 1"},
		{"A1", "A0, start 1, B0, wait 1, start 2, A1, wait 2"},
		{"B1", "A0, start 1, B0, wait 1, start 2, A1, wait 2, start 3, B1, wait 3"},
		{"panic A1", "A0, start 1, B0, wait 1, start 2, A1, wait 2"},
		{"panic B1", "A0, start 1, B0, wait 1, start 2, A1, wait 2, start 3, B1, wait 3"},
	} {
		got, err := interleave(t, [2]int{2, 2}, 0, c.stop)
		require.ErrorContains(t, err, c.stop)
		require.Equal(t, c.want, got, c.stop)
	}
	got, err := interleave(t, [2]int{2, 2}, 2, "")
	require.ErrorContains(t, err, "the cable is cut")
	require.Equal(t, "A0, start 1, B0, wait 1, start 2, A1, wait 2, wait 2", got, "the group waits once more until its memory is free")
}

// TestFirstRows: a step of enough rows has two micro-batches, the first the longer.
func TestFirstRows(t *testing.T) {
	for _, c := range []struct{ from, rows, least, ranks, want int }{
		{0, 512, 1, 2, 0}, {64, 63, 1, 2, 0}, {64, 64, 1, 2, 32}, {64, 65, 1, 2, 33}, {64, 512, 1, 1, 0},
		{1, 3, 1, 2, 0}, {1, 4, 1, 2, 2}, {1, 63, 16, 2, 0}, {1, 64, 16, 2, 32}, {1, 96, 16, 3, 48},
	} {
		p, err := parallel.ByExperts(parallel.Sizes{Experts: 8, Heads: 1, Vocabulary: 1}, make1(c.ranks))
		require.NoError(t, err)
		require.Equal(t, c.want, p.MicroBatches(c.from).FirstRows(c.rows, c.least), "%+v", c)
	}
	require.Zero(t, parallel.Placement(nil).FirstRows(512, 1))
	p := weighted(t, 64, 3, 1)
	require.Nil(t, p.CutLike(nil, 32, 1), "a step that is not divided")
	require.Equal(t, []parallel.Range{{End: 24}, {Start: 24, End: 32}}, p.CutLike(p.Cut(64, 1), 32, 1))
	p = p.MicroBatches(2)
	require.NoError(t, p.Check(p.Sizes(), 2))
	p[1].Micro = 3
	require.ErrorIs(t, p.Check(p.Sizes(), 2), distributed.ErrArgument)
	require.ErrorIs(t, p.MicroBatches(-1).Check(p.Sizes(), 2), distributed.ErrArgument)
}

func make1(n int) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = 1
	}
	return x
}
