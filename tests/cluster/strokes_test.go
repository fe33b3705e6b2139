//go:build unix

package cluster

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf"
	"ringmaster/gguf/gguftest"
	"ringmaster/internal/testenv"
	"ringmaster/tests/cluster/harness"
)

// The kinds of faults of the campaign and of the soak, and the networks between the ranks.

// finding is how a fault shows.
type finding int

const (
	closed finding = iota // a connection ends, or ranks disagree
	silent                // nothing is heard any more
	slow                  // it does not show: everything is only slow
)

func (f finding) String() string {
	return [...]string{"closed connections", "silence", "crawling"}[f]
}

// stroke is a kind of fault; strike returns the ranks that must be repaired, and the rank
// that the verdict must name, -1 for any of them.
type stroke struct {
	name    string
	least   int  // ranks that the cluster must have
	net     bool // they must be in network namespaces
	finding finding
	strike  func(b *bed, r *rand.Rand) (victims []int, named int)
	repair  func(b *bed, rank int) // nil: the victim stays out until the leader is restarted
}

// fits reports whether a cluster can suffer the fault.
func (s stroke) fits(b *bed) bool { return b.Size >= s.least && (b.Net != nil || !s.net) }

// drawn is a fault that the cluster can suffer.
func (b *bed) drawn(r *rand.Rand) stroke {
	for {
		if s := strokes[r.IntN(len(strokes))]; s.fits(b) {
			return s
		}
	}
}

// one strikes a random follower with a signal.
func one(s syscall.Signal) func(*bed, *rand.Rand) ([]int, int) {
	return func(b *bed, r *rand.Rand) ([]int, int) {
		victim := 1 + r.IntN(b.Size-1)
		b.signal(victim, s)
		return []int{victim}, victim
	}
}

// two kills a follower, and strikes another one when the log of rank 0 has a line after
// it; "" strikes both at once.
func two(line string, second syscall.Signal) func(*bed, *rand.Rand) ([]int, int) {
	return func(b *bed, r *rand.Rand) ([]int, int) {
		victims := r.Perm(b.Size - 1)[:2]
		from, s := b.Rank(0).Log.Len(), syscall.SIGKILL
		for i := range victims {
			victims[i]++
			b.signal(victims[i], s)
			if i == 0 && line != "" {
				b.waitLog(0, from, line)
			}
			s = second
		}
		return victims, -1
	}
}

// again restarts a rank and strikes it while it joins.
func again(strike func(b *bed, rank, from int)) func(*bed, int) {
	return func(b *bed, rank int) {
		from := b.Rank(0).Log.Len()
		b.restart(rank)
		b.waitLog(0, from, named(rank)+` (prepares|joined)`)
		strike(b, rank, from)
	}
}

// crawl lets a follower run for only a small part of the time, for a while: it is alive,
// and all ranks wait for it.
func crawl(b *bed, r *rand.Rand) ([]int, int) {
	victim, cycle, share := 1+r.IntN(b.Size-1), time.Duration(60+r.IntN(200))*time.Millisecond, 0.05+0.15*r.Float64()
	for end := time.Now().Add(time.Duration(1+r.IntN(4)) * time.Second); time.Now().Before(end); {
		for _, s := range []struct {
			signal syscall.Signal
			part   float64
		}{{syscall.SIGSTOP, 1 - share}, {syscall.SIGCONT, share}} {
			b.signal(victim, s.signal)
			<-time.After(time.Duration(s.part * float64(cycle))) // the fault itself, not a wait
		}
	}
	return nil, -1
}

// flip flips a bit in a follower's own mapped copy of the weights, as a memory fault does.
// It chooses weights that mix a layer's streams, because every rank does that for itself,
// while all ranks would agree on a changed part of a sum.
func flip(b *bed, r *rand.Rand) ([]int, int) {
	victim := 1 + r.IntN(b.Size-1)
	path := b.RankFlags[victim][1]
	f := gguftest.OpenFile(b.t, path)
	const name = "blk.%d.hc_attn_fn.weight"
	layers := 0
	for _, ok := f.Tensor(fmt.Sprintf(name, 0)); ok; _, ok = f.Tensor(fmt.Sprintf(name, layers)) {
		layers++
	}
	weights, ok := f.Tensor(fmt.Sprintf(name, r.IntN(layers)))
	require.True(b.t, ok)
	// The first bit of a mantissa, so that the value changes by a quarter or more, in the
	// last row: the mix of streams that the others do not see in any sum.
	number, bit := len(weights.Data)-2, byte(1<<6)
	if weights.Type == gguf.F16 {
		number, bit = len(weights.Data)-1, 1<<1
	} else {
		require.Equal(b.t, gguf.F32, weights.Type)
	}
	at := int(uintptr(unsafe.Pointer(&weights.Data[number])) - uintptr(unsafe.Pointer(&f.Mappings()[0][0])))
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(b.t, err)
	defer file.Close()
	_, err = file.WriteAt([]byte{weights.Data[number] ^ bit}, int64(at))
	require.NoError(b.t, err)
	return []int{victim}, victim
}

// link does something to the cable of a random follower.
func link(do func(n *harness.Net, rank int) error) func(*bed, *rand.Rand) ([]int, int) {
	return func(b *bed, r *rand.Rand) ([]int, int) {
		victim := 1 + r.IntN(b.Size-1)
		cabling(do)(b, victim)
		return []int{victim}, victim
	}
}

// wrong is a rank that computes wrongly. It is the last fault of a cluster in the
// campaign.
var wrong = stroke{name: "a bit flipped", least: 3, finding: closed, strike: flip}

// strokes are the faults after which the ranks come back.
var strokes = []stroke{
	{"killed", 2, false, closed, one(syscall.SIGKILL), (*bed).restart},
	{"terminated", 2, false, closed, one(syscall.SIGTERM), (*bed).restart},
	{"stopped", 2, false, silent, one(syscall.SIGSTOP), signals(syscall.SIGCONT)},
	{"two killed at once", 3, false, closed, two("", syscall.SIGKILL), (*bed).restart},
	{"one killed, one more while recovering", 3, false, closed, two(`epoch \d+ has ended`, syscall.SIGKILL), (*bed).restart},
	{"one killed, one terminated while recovering", 3, false, closed, two(`epoch \d+ has ended`, syscall.SIGTERM), (*bed).restart},
	{"killed, and again while joining", 2, false, closed, one(syscall.SIGKILL), again(func(b *bed, rank, _ int) {
		b.signal(rank, syscall.SIGKILL)
		b.restart(rank)
	})},
	{"killed, and stopped while joining", 2, false, silent, one(syscall.SIGKILL), again(func(b *bed, rank, from int) {
		b.signal(rank, syscall.SIGSTOP)
		b.waitLog(0, from, named(rank)+` at \S+ is gone`)
		b.signal(rank, syscall.SIGCONT)
	})},
	{"slowed to a crawl", 2, false, slow, crawl, nil},
	{"cable pulled", 2, true, silent, link((*harness.Net).Cut), cabling((*harness.Net).Restore)},
	{"interface down", 2, true, silent, link((*harness.Net).Down), cabling((*harness.Net).Up)},
	{"the leader's cable pulled", 2, true, silent, func(b *bed, _ *rand.Rand) ([]int, int) {
		require.NoError(b.t, b.Net.Cut(0))
		return []int{0}, -1
	}, cabling((*harness.Net).Restore)},
	{"two cables pulled", 3, true, silent, func(b *bed, r *rand.Rand) ([]int, int) {
		victims := r.Perm(b.Size - 1)[:2]
		for i := range victims {
			victims[i]++
			require.NoError(b.t, b.Net.Cut(victims[i]))
		}
		return victims, -1
	}, cabling((*harness.Net).Restore)},
	{"killed, and its cable pulled while joining", 2, true, silent, one(syscall.SIGKILL), again(func(b *bed, rank, from int) {
		require.NoError(b.t, b.Net.Cut(rank))
		b.waitLog(0, from, named(rank)+` at \S+ is gone`)
		require.NoError(b.t, b.Net.Restore(rank))
	})},
	{"a link slowed", 2, true, slow, func(b *bed, r *rand.Rand) ([]int, int) {
		rate := fmt.Sprintf("%dmbit", 8+r.IntN(13))
		return link(func(n *harness.Net, rank int) error { return n.Slow(rank, rate) })(b, r)
	}, cabling((*harness.Net).Fast)},
}

// fabric is a network between the ranks. prepare sets a cluster up for it and returns a
// check, for the time after the cluster's end, that nothing is left of it.
type fabric struct {
	name    string
	prepare func(t *testing.T, o *harness.Options) (left func())
}

// fabrics are the fabrics of the campaign.
var fabrics = []fabric{
	{"tcp over cables", func(t *testing.T, o *harness.Options) func() {
		o.Flags = append(o.Flags, "--transport", "tcp")
		if err := harness.NetAvailable(); err != nil {
			t.Logf("NOT CHECKED: what is done to cables: %v", err)
		} else {
			o.Net = network(t, o.Size)
		}
		return func() {}
	}},
	{"tcp", func(_ *testing.T, o *harness.Options) func() {
		o.Flags = append(o.Flags, "--transport", "tcp")
		return func() {}
	}},
}

// copyOf makes a copy of a file that is removed at the end of the test.
func copyOf(t *testing.T, path string) string {
	data := testenv.ReadFile(t, path)
	out := testenv.WriteFile(t, filepath.Join(t.TempDir(), filepath.Base(path)), data)
	return out
}
