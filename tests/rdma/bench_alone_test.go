//go:build cgo && linux

package rdma

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed/rdma/helper"
	"ringmaster/distributed/rdma/verbs"
	"ringmaster/tests/fakeverbs"
)

// loop is one device with a cable that leads back to it, and two queue pairs that
// send to each other. It does what a rank posts and polls for an exchange with one
// peer, without a second rank that needs a processor.
type loop struct {
	rawDevice
	qp [2]*verbs.QP
}

func openLoop(b *testing.B, lib *verbs.Library, name string, bytes int) *loop {
	l := &loop{rawDevice: openRaw(b, lib, name, 4*bytes)}
	for i := range l.qp {
		l.qp[i] = l.queuePair(b, bytes)
	}
	for i, q := range l.qp {
		l.route(b, q, l.qp[1-i], &l.rawDevice)
	}
	return l
}

// exchange sends bytes in messages both ways and waits for all completions.
func (l *loop) exchange(bytes int) error {
	messages := min(loopDepth, max(1, bytes/(64<<10)))
	size := bytes / messages
	for i, q := range l.qp { // receives first
		for m := range messages {
			if _, err := q.PostRecv(l.mr.Request(uint64(m), (2+i)*bytes+m*size, size)); err != nil {
				return err
			}
		}
	}
	for i, q := range l.qp {
		for m := range messages {
			if _, err := q.PostSend(l.mr.Request(uint64(m), i*bytes+m*size, size)); err != nil {
				return err
			}
		}
	}
	var done [16]verbs.WC
	for left := 4 * messages; left > 0; {
		n, err := l.cq.Poll(done[:])
		if err != nil {
			return err
		}
		for _, c := range done[:n] {
			if c.Status != 0 {
				return fmt.Errorf("completion %v", c.Status)
			}
		}
		left -= n
	}
	return nil
}

// BenchmarkHelperAlone measures what a helper process costs when every polling
// thread has its own processor: the rank's and the helper's. An exchange is what a
// rank posts and polls for a sum with one peer; the cable leads back to the device.
// In this process and in a helper, in turns; "difference" is between the fastest.
func BenchmarkHelperAlone(b *testing.B) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for _, wire := range []struct{ name, words string }{{"no time", ""}, {"2 GB per s", "latency_ns=6000 mbps=2000"}} {
		for _, c := range []struct{ bytes, count int }{{16 << 10, 400}, {4 << 20, 20}} {
			b.Run(fmt.Sprintf("cable=%s/bytes=%d", wire.name, c.bytes), func(b *testing.B) {
				b.Setenv("FAKEVERBS_DIR", b.TempDir())
				f, err := fakeverbs.Make(b.TempDir(), fmt.Sprintf("device s0\ncable s0 s0 %[1]s\ndevice s1\ncable s1 s1 %[1]s\n", wire.words))
				require.NoError(b, err)
				inside, err := verbs.Open(f.Path)
				require.NoError(b, err)
				outside, err := helper.Open(f.Path, 50*time.Microsecond) // as rdma.Tuning.Spin is by default
				require.NoError(b, err)
				loops := []*loop{openLoop(b, inside, "s0", c.bytes), openLoop(b, outside, "s1", c.bytes)}
				took := make([][]float64, len(loops))
				for b.Loop() {
					for k, l := range loops {
						for i := range 4 + c.count { // the first ones wake the helper and touch memory
							begun := time.Now()
							require.NoError(b, l.exchange(c.bytes))
							if i >= 4 {
								took[k] = append(took[k], float64(time.Since(begun))/1e3)
							}
						}
					}
				}
				for k, name := range []string{"in-process", "helper"} {
					slices.Sort(took[k])
					b.ReportMetric(took[k][0], "µs/fastest-"+name)
					b.ReportMetric(took[k][len(took[k])/2], "µs/median-"+name)
				}
				b.ReportMetric(took[1][0]-took[0][0], "µs/difference")
				b.ReportMetric(100*(took[1][0]/took[0][0]-1), "%/difference")
				b.ReportMetric(0, "ns/op")
				for _, l := range loops {
					l.close(b)
				}
				require.NoError(b, inside.Close())
				require.NoError(b, outside.Close())
				require.NoError(b, f.Close())
			})
		}
	}
}
