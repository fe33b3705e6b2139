//go:build cgo && (linux || darwin)

package rdma

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/distributed/rdma"
	"ringmaster/distributed/rdma/matrix"
	"ringmaster/distributed/tcp"
	"ringmaster/internal/testenv"
	"ringmaster/tests/fakeverbs"
)

// The cost of a helper process: sums of two ranks, which are two processes, with the
// verbs in the ranks and in helpers, in turns. The fabric copies between processes
// in both cases, so that they differ only in the helpers.

// benchVariable makes this test binary rank 1 of BenchmarkHelper: the addresses of
// rank 0, in JSON.
const benchVariable = "RINGMASTER_TEST_BENCH_RANK"

// places are the processes with the verbs. Each kind of cable has a device for each
// place: number kind*len(places)+place.
var places = []rdma.Process{rdma.InProcess, rdma.Helper}

// wires are the kinds of cables: one that takes no time, where only the software
// counts, and one that takes time as a card does, while processors are free.
var wires = []struct{ name, words string }{{"no time", ""}, {"1 GB per s", "latency_ns=6000 mbps=1000"}}

// benchScript is the fabric of the benchmark.
func benchScript() string {
	s := ""
	for k := range len(places) * len(wires) {
		s += fmt.Sprintf("device %[1]s host=0\ndevice %[2]s host=1\ncable %[1]s %[2]s %[3]s\n", device(0, 1, k), device(1, 0, k), wires[k/len(places)].words)
	}
	return s
}

// benchRank is one rank of the benchmark with a transport for each place.
type benchRank struct {
	rank       int
	transports []*rdma.Transport
	addrs      []string
	groups     []*distributed.Group
}

func newBenchRank(rank int, library string) (*benchRank, error) {
	r := &benchRank{rank: rank}
	for k := range len(places) * len(wires) {
		tr := rdma.New(rdma.Options{Side: tcp.New(tcp.Options{Threshold: -1}), Matrix: matrix.Matrix{{nil, {device(0, 1, k)}}, {{device(1, 0, k)}, nil}},
			Verbs: places[k%len(places)], Tuning: rdma.Tuning{Library: library, Model: model, TokenTimeout: 20 * time.Second}})
		addr, err := tr.Listen("127.0.0.1")
		if err != nil {
			return nil, err
		}
		r.transports, r.addrs = append(r.transports, tr), append(r.addrs, addr)
	}
	return r, nil
}

// connect forms the groups, with the addresses of both ranks.
func (r *benchRank) connect(ctx context.Context, addrs [2][]string) error {
	for k, tr := range r.transports {
		g, err := tr.Connect(ctx, distributed.Link{Rank: r.rank, Size: 2, GroupID: fmt.Sprint("bench", k), Epoch: 1, Token: bytes.Repeat([]byte{9}, 32),
			Addrs: []string{addrs[0][k], addrs[1][k]}, OpTimeout: time.Minute})
		if err != nil {
			return err
		}
		r.groups = append(r.groups, g)
	}
	return nil
}

func (r *benchRank) close() error {
	var errs []error
	for _, g := range r.groups {
		errs = append(errs, g.Close())
	}
	for _, tr := range r.transports {
		errs = append(errs, tr.Close())
	}
	return errors.Join(errs...)
}

// order is a request of rank 0: sums over the group of a device; none at the end.
type order struct{ Device, Bytes, Count uint64 }

// run does an order and returns the times of its sums. Rank 0 sends it to rank 1
// over the group in this process.
func (r *benchRank) run(ctx context.Context, o *order) ([]float64, error) {
	text := make([]byte, 24)
	_, _ = binary.Encode(text, binary.LittleEndian, o) // it has room
	if err := r.groups[0].Broadcast(ctx, text, 0); err != nil {
		return nil, err
	}
	_, _ = binary.Decode(text, binary.LittleEndian, o)
	src, dst := make([]byte, o.Bytes), make([]byte, o.Bytes)
	took := make([]float64, 0, o.Count)
	g := r.groups[o.Device]
	for i := range 4 + o.Count { // the first ones wake helpers and touch memory
		begun := time.Now()
		if err := g.AllSum(ctx, dst, src, distributed.Float16); err != nil {
			return nil, err
		}
		if i >= 4 {
			took = append(took, float64(time.Since(begun))/1e3)
		}
	}
	return took, nil
}

// benchPeer is rank 1.
func benchPeer(zero string) error {
	var addrs [2][]string
	if err := json.Unmarshal([]byte(zero), &addrs[0]); err != nil {
		return err
	}
	r, err := newBenchRank(1, os.Getenv("RINGMASTER_VERBS_LIBRARY"))
	if err != nil {
		return err
	}
	addrs[1] = r.addrs
	if err := json.NewEncoder(os.Stdout).Encode(r.addrs); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 9*time.Minute)
	defer cancel()
	err = r.connect(ctx, addrs)
	for o := (order{Count: 1}); err == nil && o.Count > 0; {
		_, err = r.run(ctx, &o)
	}
	return errors.Join(err, r.close())
}

// BenchmarkHelper measures sums of 16 KiB and of 4 MiB; run it with -benchtime 1x.
func BenchmarkHelper(b *testing.B) {
	dir := b.TempDir()
	for _, v := range fakeverbs.Env(b, dir, benchScript(), 0)[:3] { // all hosts' devices: each rank names its own
		name, value, _ := bytes.Cut([]byte(v), []byte("="))
		b.Setenv(string(name), string(value))
	}
	zero, err := newBenchRank(0, "")
	require.NoError(b, err)
	text := testenv.JSON(b, zero.addrs)
	peer := exec.CommandContext(b.Context(), os.Args[0])
	peer.Env = append(os.Environ(), benchVariable+"="+string(text))
	peer.Stderr = os.Stderr
	out, err := peer.StdoutPipe()
	require.NoError(b, err)
	require.NoError(b, peer.Start())
	addrs := [2][]string{zero.addrs}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	require.NoError(b, err)
	require.NoError(b, json.Unmarshal(line, &addrs[1]))
	require.NoError(b, zero.connect(b.Context(), addrs))
	for w, wire := range wires {
		for _, c := range []struct{ bytes, count, turns uint64 }{{16 << 10, 200, 40}, {4 << 20, 5, 40}} {
			b.Run(fmt.Sprintf("cable=%s/bytes=%d", wire.name, c.bytes), func(b *testing.B) {
				took := make([][]float64, len(places))
				for range uint64(b.N) * c.turns {
					for k := range places {
						t, err := zero.run(b.Context(), &order{Device: uint64(w*len(places) + k), Bytes: c.bytes, Count: c.count})
						require.NoError(b, err)
						took[k] = append(took[k], t...)
					}
				}
				for k, name := range []string{"in-process", "helper"} {
					slices.Sort(took[k])
					n := len(took[k])
					b.ReportMetric(took[k][0], "µs/fastest-"+name)
					b.ReportMetric(took[k][n/10], "µs/tenth-"+name)
					b.ReportMetric(took[k][n/2], "µs/median-"+name)
				}
				b.ReportMetric(0, "ns/op")
			})
		}
	}
	_, err = zero.run(b.Context(), &order{})
	require.NoError(b, err)
	require.NoError(b, zero.close())
	require.NoError(b, peer.Wait())
}
