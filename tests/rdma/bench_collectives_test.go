//go:build cgo && linux

package rdma

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/distributed/rdma"
	"ringmaster/distributed/rdma/verbs"
)

// bareEnd is one end of a cable with only verbs: what any program must post and poll to
// exchange bytes with its peer.
type bareEnd struct {
	rawDevice
	lib   *verbs.Library
	qp    *verbs.QP
	size  int // bytes of a part
	round int
	// Sent and received messages that must still complete by the end of the round. A fast
	// peer's next part may arrive before a send of this round completes.
	due [2]int
}

// bareCable is the cable of the bare ends in the script of the verbs library.
const bareCable = "device bare0 host=0\ndevice bare1 host=1\ncable bare0 bare1 %s\n"

// bareEnds makes both ends, for parts of size bytes: each has memory for what it sends, and
// two buffers for what it receives, receive[rank] bytes each time.
func bareEnds(b *testing.B, library string, size int, receive [2]int) [2]*bareEnd {
	var ends [2]*bareEnd
	for i := range ends {
		lib, err := verbs.Open(library)
		require.NoError(b, err)
		e := &bareEnd{rawDevice: openRaw(b, lib, fmt.Sprintf("bare%d", i), 3*size), lib: lib, size: size}
		e.qp = e.queuePair(b, size)
		ends[i] = e
	}
	for i, e := range ends {
		peer := ends[1-i]
		e.route(b, e.qp, peer.qp, &peer.rawDevice)
		require.NoError(b, e.post(receive[i], true))
	}
	b.Cleanup(func() {
		for _, e := range ends {
			e.close(b)
			require.NoError(b, e.lib.Close())
		}
	})
	return ends
}

// The kinds of completions.
const (
	sent     = 0
	received = 1
)

// messages is how many messages a part of n bytes travels in.
func messages(n int) int { return min(loopDepth, max(1, n/(64<<10))) }

// post posts the messages of a part of n bytes, received into the buffer of this round.
func (e *bareEnd) post(n int, receive bool) error {
	count := messages(n)
	each := n / count
	for m := range count {
		var err error
		if receive {
			_, err = e.qp.PostRecv(e.mr.Request(received, (1+e.round%2)*e.size+m*each, each))
		} else {
			_, err = e.qp.PostSend(e.mr.Request(sent, m*each, each))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// exchange sends a part of send bytes and waits for it and for the peer's part of receive
// bytes. The receives of the next round are posted first: the peer may begin it at once.
func (e *bareEnd) exchange(send, receive int) error {
	e.round++
	if err := e.post(receive, true); err != nil {
		return err
	}
	if err := e.post(send, false); err != nil {
		return err
	}
	var done [16]verbs.WC
	begun := time.Now()
	e.due[sent] += messages(send)
	e.due[received] += messages(receive)
	for e.due[sent] > 0 || e.due[received] > 0 {
		n, err := e.cq.Poll(done[:])
		if err != nil {
			return err
		}
		if n == 0 && time.Since(begun) > 10*time.Second {
			return fmt.Errorf("completions of %d sends and %d receives are missing in round %d", e.due[sent], e.due[received], e.round)
		}
		for _, c := range done[:n] {
			if c.Status != 0 {
				return fmt.Errorf("completion %v", c.Status)
			}
			e.due[c.ID]--
		}
	}
	return nil
}

// copying is an exchange of data outside registered memory: sent data is copied there
// first, and received data from there.
func (e *bareEnd) copying(to, from []byte) error {
	copy(e.mem.Bytes(), from)
	if err := e.exchange(len(from), len(to)); err != nil {
		return err
	}
	copy(to, e.mem.Bytes()[(1+(e.round-1)%2)*e.size:])
	return nil
}

// both runs f on both ranks, each on a thread of its own, and returns the time of rank 0 in
// microseconds for each of the rounds.
func both(b *testing.B, rounds int, f func(rank int) error) float64 {
	var took time.Duration
	var errs [2]error
	var all sync.WaitGroup
	for r := range errs {
		all.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			begun := time.Now()
			for range rounds {
				if errs[r] = f(r); errs[r] != nil {
					return
				}
			}
			if r == 0 {
				took = time.Since(begun)
			}
		})
	}
	all.Wait()
	succeed(b, errs[:])
	return float64(took) / 1e3 / float64(rounds)
}

// BenchmarkCollectives measures the collectives of two ranks over one cable of the verbs
// library without hardware beside a bare exchange of the same bytes by the same library, in
// turns: over a cable that charges no time, where each copy counts, and over one of 10 us
// and 6 GB/s, which docs/distributed-benchmark.md assumes for Thunderbolt. A second bare
// exchange copies to and from registered memory, because every user of the data must. In a
// bare gather rank 0 answers with four bytes, because over verbs a rank may send only what
// the other is ready to receive.
func BenchmarkCollectives(b *testing.B) {
	type test struct {
		cable, name string
		size        int
	}
	var tests []test
	for _, cable := range []string{"", "latency_ns=10000 mbps=6000"} {
		for _, name := range []string{"reduce-scatter", "all-gather-v", "gather"} {
			tests = append(tests, test{cable, name, 16 << 10}, test{cable, name, 4 << 20})
		}
	}
	for _, c := range tests {
		b.Run(fmt.Sprintf("cable=%s/%s/KiB=%d", c.cable, c.name, c.size>>10), func(b *testing.B) {
			w := joined(2, 1, func(int, int) bool { return true }, "", c.cable)
			w.script += fmt.Sprintf(bareCable, c.cable)
			x := group(b, w, 2, func(_ int, o *rdma.Options, _ *distributed.Link) {
				o.Tuning.Spin = 0
				if c.cable != "" {
					o.Tuning.Model.Rate, o.Tuning.Model.Latency, o.Tuning.Model.Memory = 6e9, 10000, 8e9
				}
			})
			const answer = 4
			name, size := c.name, c.size
			receive := [2]int{size, size}
			if name == "gather" {
				receive[1] = answer
			}
			ends := bareEnds(b, x.fabric.Path, size, receive)
			parts, out, in := []int{size, size}, [2][]byte{}, [2][]byte{}
			for r := range out {
				out[r], in[r] = make([]byte, 2*size), make([]byte, 2*size)
			}
			collective := func(rank int) error {
				g, own := x.groups[rank], in[rank][rank*size:][:size]
				switch name {
				case "reduce-scatter":
					return g.StartReduceScatter(b.Context(), own, out[rank], parts, distributed.Float16).Wait()
				case "all-gather-v":
					return g.StartAllGatherV(b.Context(), in[rank], parts).Wait()
				}
				return g.StartGather(b.Context(), in[rank], own, parts, 0).Wait()
			}
			bare := func(rank int) error { return ends[rank].exchange(receive[1-rank], receive[rank]) }
			copying := func(rank int) error {
				return ends[rank].copying(in[rank][:receive[rank]], out[rank][:receive[1-rank]])
			}
			rounds := max(5, 200*(16<<10)/size)
			var took [3][]float64
			for i := range b.N + 1 { // the first turn touches the memory
				for k, f := range []func(int) error{bare, collective, copying} {
					if us := both(b, rounds, f); i > 0 {
						took[k] = append(took[k], us)
					}
				}
			}
			b.ReportMetric(slices.Min(took[0]), "bare-µs/fastest")
			b.ReportMetric(slices.Min(took[1]), "µs/fastest")
			b.ReportMetric(slices.Min(took[2]), "copying-µs/fastest")
			b.ReportMetric(slices.Min(took[1])/slices.Min(took[0]), "ratio/fastest")
			b.ReportMetric(slices.Min(took[1])/slices.Min(took[2]), "copying-ratio/fastest")
			b.ReportMetric(median(took[0]), "bare-µs/median")
			b.ReportMetric(median(took[1]), "µs/median")
			b.ReportMetric(median(took[1])/median(took[0]), "ratio/median")
			b.ReportMetric(median(took[1])/median(took[2]), "copying-ratio/median")
			b.ReportMetric(0, "ns/op")
		})
	}
}
