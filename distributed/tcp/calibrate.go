package tcp

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"syscall"
	"time"

	"ringmaster/distributed"
	"ringmaster/distributed/reduce"
)

// Calibration holds the measurements made when the group was connected, and the
// choices that follow from them. All ranks use rank 0's figures.
type Calibration struct {
	Latency   time.Duration // of an all-reduce of 4 KiB in one phase
	Scattered time.Duration // of the same all-reduce in two phases
	Bandwidth float64       // bytes per second that a rank receives while all ranks exchange data
	Reduction float64       // bytes per second that a rank reduces
	Threshold int           // bytes from which reductions are scattered, < 0 never
	Credit    int           // bytes a rank may send before the peer has reached the same operation
}

// Describe implements distributed.Driver.
func (d *driver) Describe() distributed.Description {
	c := d.measured
	s := fmt.Sprintf("tcp mesh of %d ranks", d.size)
	if c.Latency > 0 {
		s += fmt.Sprintf(", latency %v (two phases %v), %.2f GB/s", c.Latency.Round(time.Microsecond), c.Scattered.Round(time.Microsecond), c.Bandwidth/1e9)
	}
	if c.Threshold < 0 {
		s += ", reductions never scattered"
	} else {
		s += fmt.Sprintf(", reductions scattered from %d KiB", c.Threshold>>10)
	}
	return distributed.Description{Kind: "tcp", Topology: s}
}

// The sizes of the measurement, and the time limit of its longest round.
const (
	smallRound  = 4 << 10
	middleRound = 128 << 10
	largeRound  = 1 << 20
	rounds      = 12
	longest     = 30 * time.Millisecond
)

// Calibrate verifies that all ranks are connected to all others, measures, and
// adopts what rank 0 has decided. A child keeps its parent's figures, because
// its ranks are among the parent's.
func (d *driver) Calibrate(ctx context.Context, g *distributed.Group) error {
	if err := d.agreeCredit(ctx, g); err != nil {
		return err
	}
	if d.link.Child {
		d.measured.Credit = d.credit
		if d.measured.Latency > 0 {
			d.measured.Threshold = threshold(d.size, d.measured)
		}
		d.threshold = d.measured.Threshold
		return nil
	}
	cal := Calibration{Threshold: d.transport.opts.Threshold, Credit: d.credit}
	var measure [8]byte
	if d.transport.opts.Threshold == 0 {
		measure[0] = 1
	}
	if err := g.Broadcast(ctx, measure[:], 0); err != nil {
		return err
	}
	if measure[0] == 1 {
		if err := d.measure(ctx, g, &cal); err != nil {
			return err
		}
	}
	le := binary.LittleEndian
	var b [40]byte // latencies in ns, bandwidth and reduction as float64, threshold
	le.PutUint64(b[:], uint64(cal.Latency))
	le.PutUint64(b[32:], uint64(cal.Scattered))
	le.PutUint64(b[8:], math.Float64bits(cal.Bandwidth))
	le.PutUint64(b[16:], math.Float64bits(cal.Reduction))
	le.PutUint64(b[24:], uint64(cal.Threshold))
	if err := g.Broadcast(ctx, b[:], 0); err != nil {
		return err
	}
	cal.Latency, cal.Scattered = time.Duration(le.Uint64(b[:])), time.Duration(le.Uint64(b[32:]))
	cal.Bandwidth, cal.Reduction = math.Float64frombits(le.Uint64(b[8:])), math.Float64frombits(le.Uint64(b[16:]))
	cal.Threshold = int(int64(le.Uint64(b[24:])))
	d.measured, d.threshold = cal, cal.Threshold
	return nil
}

// agreeCredit uses the smallest credit that any rank can give. It also shows
// that all connections work, because it is the first operation.
func (d *driver) agreeCredit(ctx context.Context, g *distributed.Group) error {
	own := uint64(d.transport.opts.Credit)
	if own == 0 {
		own = 8 << 20
		d.each(func(l *lane) { own = min(own, uint64(l.receiveBuffer())) })
		own = max(own/8, leastCredit)
	}
	all := make([]byte, 8*d.size)
	src := binary.LittleEndian.AppendUint64(nil, own)
	if err := g.AllGather(ctx, all, src); err != nil {
		return err
	}
	for r := range d.size {
		own = min(own, binary.LittleEndian.Uint64(all[8*r:]))
	}
	d.credit = int(own)
	return nil
}

// leastCredit is a receive window that every operating system opens by default.
const leastCredit = 64 << 10

// receiveBuffer returns the size of the kernel's receive buffer, 0 if unknown.
func (l *lane) receiveBuffer() (n int) {
	_ = l.raw.Control(func(fd uintptr) { n, _ = syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF) })
	return max(n, 0)
}

// measure times small and large messages. Rank 0 decides how large, so that a
// slow link does not delay the start.
func (d *driver) measure(ctx context.Context, g *distributed.Group, cal *Calibration) error {
	var err error
	d.threshold = -1
	if cal.Latency, err = median(ctx, g, smallRound, rounds); err != nil {
		return err
	}
	d.threshold = 0
	if cal.Scattered, err = median(ctx, g, smallRound, rounds); err != nil {
		return err
	}
	d.threshold = -1
	size := middleRound
	large, err := median(ctx, g, size, 3)
	if err != nil {
		return err
	}
	var more [8]byte
	if large*(largeRound/middleRound) < longest {
		more[0] = 1
	}
	if err := g.Broadcast(ctx, more[:], 0); err != nil {
		return err
	}
	if more[0] == 1 {
		size = largeRound
		if large, err = median(ctx, g, size, 3); err != nil {
			return err
		}
	}
	cal.Reduction = d.reductionRate()
	wire := large - cal.Latency - time.Duration(float64(d.size*(size-smallRound))/cal.Reduction*1e9)
	cal.Bandwidth = float64((d.size-1)*(size-smallRound)) / max(wire, time.Microsecond).Seconds()
	cal.Threshold = threshold(d.size, *cal)
	return nil
}

// median returns the median time of n all-reduces of size bytes, after one
// uncounted warm-up.
func median(ctx context.Context, g *distributed.Group, size, n int) (time.Duration, error) {
	src, dst := make([]byte, size), make([]byte, size)
	times := make([]time.Duration, n+1)
	for i := range times {
		t := time.Now()
		if err := g.AllSum(ctx, dst, src, distributed.Float16); err != nil {
			return 0, err
		}
		times[i] = time.Since(t)
	}
	times = times[1:]
	slices.Sort(times)
	return times[n/2], nil
}

func (d *driver) reductionRate() float64 {
	blocks := make([][]byte, d.size)
	for i := range blocks {
		blocks[i] = make([]byte, middleRound)
	}
	best := time.Duration(math.MaxInt64)
	for range 3 {
		t := time.Now()
		reduce.Reduce(reduce.Sum, distributed.Float16, blocks[0], blocks...)
		best = min(best, time.Since(t))
	}
	return float64(middleRound*d.size) / max(best, time.Microsecond).Seconds()
}

// threshold returns the length from which two phases are faster than one
// (collectives specification, 11.2, extended by the time to reduce and the
// measured latency of both). With a and b the latencies, B the bandwidth and R
// the rate of reduction:
//
//	one phase   a + (N-1) S/B + N S/R
//	two phases  b + 2 (N-1)/N S/B + S/R
func threshold(n int, c Calibration) int {
	size := float64(n)
	perByte := (size-1)*(1-2/size)/c.Bandwidth + (size-1)/c.Reduction
	s := (c.Scattered - c.Latency).Seconds() / perByte
	return int(min(max(s, leastScattered), mostWhole)) &^ 4095
}

// Bounds of the computed threshold, needed because a measurement may be
// disturbed.
const (
	leastScattered = 32 << 10
	mostWhole      = 4 << 20
)
