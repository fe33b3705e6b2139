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

// Calibration is what was measured when the group was connected, and what
// follows from it. It is that of rank 0 on all ranks.
type Calibration struct {
	Latency   time.Duration // of a reduction of 4 KiB in one phase
	Scattered time.Duration // of the same in two phases
	Bandwidth float64       // bytes per second that a rank receives while all exchange
	Reduction float64       // bytes per second that a rank reduces
	Threshold int           // bytes from which reductions are scattered, < 0 never
	Credit    int           // bytes a rank may be ahead of a peer that has not shown up
}

// Measured is the face of this package's groups besides distributed.Group.
type Measured interface {
	Calibration() Calibration
	// Topology is one line for people: peers and what was measured.
	Topology() string
}

var _ Measured = (*group)(nil)

func (g *group) Calibration() Calibration { return g.measured }

func (g *group) Topology() string {
	c := g.measured
	s := fmt.Sprintf("tcp mesh of %d ranks", g.size)
	if c.Latency > 0 {
		s += fmt.Sprintf(", latency %v (two phases %v), %.2f GB/s", c.Latency.Round(time.Microsecond), c.Scattered.Round(time.Microsecond), c.Bandwidth/1e9)
	}
	if c.Threshold < 0 {
		return s + ", reductions never scattered"
	}
	return s + fmt.Sprintf(", reductions scattered from %d KiB", c.Threshold>>10)
}

// The sizes of the measurement, and how long its longest round may take.
const (
	smallRound  = 4 << 10
	middleRound = 128 << 10
	largeRound  = 1 << 20
	rounds      = 12
	longest     = 30 * time.Millisecond
)

// calibrate makes sure that all are connected to all, measures, and takes over
// what rank 0 has decided. Until it is done nobody is told of suspicions:
// Connect returns the error.
func (g *group) calibrate(ctx context.Context) error {
	if err := g.agreeCredit(ctx); err != nil {
		return err
	}
	if g.parted != nil { // the parent's figures count for a child, whose ranks are among its
		g.measured.Credit = g.credit
		if g.measured.Latency > 0 {
			g.measured.Threshold = threshold(g.size, g.measured)
		}
		return g.start(g.measured)
	}
	cal := Calibration{Threshold: g.opts.Threshold, Credit: g.credit}
	var measure [8]byte
	if g.opts.Threshold == 0 {
		measure[0] = 1
	}
	if err := g.Broadcast(ctx, measure[:], 0); err != nil {
		return err
	}
	if measure[0] == 1 {
		if err := g.measure(ctx, &cal); err != nil {
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
	return g.start(cal)
}

// start begins the life of the group with what was measured.
func (g *group) start(cal Calibration) error {
	g.measured, g.threshold = cal, cal.Threshold
	g.seq, g.number = 0, 0
	g.ops.Store(0)
	g.sent.Store(0)
	g.received.Store(0)
	g.waiting.Store(0)
	g.wire.Store(0)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.quiet = false
	return g.cause
}

// agreeCredit takes the smallest credit that a rank can give. It is the first
// operation, so it also shows that all connections work.
func (g *group) agreeCredit(ctx context.Context) error {
	own := uint64(g.opts.Credit)
	if own == 0 {
		own = 8 << 20
		for _, l := range g.lanes {
			if l != nil {
				own = min(own, uint64(l.receiveBuffer()))
			}
		}
		own = max(own/8, leastCredit)
	}
	all := make([]byte, 8*g.size)
	src := binary.LittleEndian.AppendUint64(nil, own)
	if err := g.AllGather(ctx, all, src); err != nil {
		return err
	}
	for r := range g.size {
		own = min(own, binary.LittleEndian.Uint64(all[8*r:]))
	}
	g.credit = int(own)
	return nil
}

// leastCredit is the window that every system opens without being asked.
const leastCredit = 64 << 10

// receiveBuffer is the size the kernel has given, 0 if it does not say.
func (l *lane) receiveBuffer() (n int) {
	_ = l.raw.Control(func(fd uintptr) { n, _ = syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF) })
	return max(n, 0)
}

// measure exchanges small and large messages. Rank 0 decides how large, so that
// a slow link does not hold up the start.
func (g *group) measure(ctx context.Context, cal *Calibration) error {
	var err error
	g.threshold = -1
	if cal.Latency, err = g.median(ctx, smallRound, rounds); err != nil {
		return err
	}
	g.threshold = 0
	if cal.Scattered, err = g.median(ctx, smallRound, rounds); err != nil {
		return err
	}
	g.threshold = -1
	size := middleRound
	large, err := g.median(ctx, size, 3)
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
		if large, err = g.median(ctx, size, 3); err != nil {
			return err
		}
	}
	cal.Reduction = g.reductionRate()
	wire := large - cal.Latency - time.Duration(float64(g.size*(size-smallRound))/cal.Reduction*1e9)
	cal.Bandwidth = float64((g.size-1)*(size-smallRound)) / max(wire, time.Microsecond).Seconds()
	cal.Threshold = threshold(g.size, *cal)
	return nil
}

// median is the time of the middle one of n reductions of size bytes, after one
// that does not count.
func (g *group) median(ctx context.Context, size, n int) (time.Duration, error) {
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

func (g *group) reductionRate() float64 {
	blocks := make([][]byte, g.size)
	for i := range blocks {
		blocks[i] = make([]byte, middleRound)
	}
	best := time.Duration(math.MaxInt64)
	for range 3 {
		t := time.Now()
		reduce.Reduce(reduce.Sum, distributed.Float16, blocks[0], blocks...)
		best = min(best, time.Since(t))
	}
	return float64(middleRound*g.size) / max(best, time.Microsecond).Seconds()
}

// threshold is the length from which two phases are faster than one (collectives
// specification, 11.2, with the time to reduce and the measured start of both).
// With a and b the latencies, B the bandwidth and R the rate of reduction:
//
//	one phase   a + (N-1) S/B + N S/R
//	two phases  b + 2 (N-1)/N S/B + S/R
func threshold(n int, c Calibration) int {
	size := float64(n)
	perByte := (size-1)*(1-2/size)/c.Bandwidth + (size-1)/c.Reduction
	s := (c.Scattered - c.Latency).Seconds() / perByte
	return int(min(max(s, leastScattered), mostWhole)) &^ 4095
}

// The bounds of what was computed, whatever disturbed the measurement.
const (
	leastScattered = 32 << 10
	mostWhole      = 4 << 20
)
