package tcp

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
)

// benchPeer is the environment variable that makes the test program the other
// rank of BenchmarkCombineProcesses; its value is the address on which the
// first rank listens.
const benchPeer = "RINGMASTER_TCP_BENCH_PEER"

func TestMain(m *testing.M) {
	if addr := os.Getenv(benchPeer); addr != "" {
		if err := runPeer(addr); err != nil {
			panic(err)
		}
		return
	}
	os.Exit(m.Run())
}

// turnRounds is the number of rounds in a turn.
func turnRounds(size int) int { return min(500, 128<<20/size) }

// ends is what one process measures with: a connection for orders, a plain connection, a
// group.
type ends struct {
	orders, plain net.Conn
	group         *distributed.Group
}

// join makes the group of two processes; the addresses are exchanged over the
// order connection.
func (e *ends) join(rank int) error {
	t := New(Options{})
	mine, err := t.Listen("127.0.0.1")
	if err != nil {
		return err
	}
	var line [64]byte
	copy(line[:], mine)
	if _, err := e.orders.Write(line[:]); err != nil {
		return err
	}
	if _, err := io.ReadFull(e.orders, line[:]); err != nil {
		return err
	}
	addrs := []string{mine, string(bytes.TrimRight(line[:], "\x00"))}
	if rank == 1 {
		addrs[0], addrs[1] = addrs[1], addrs[0]
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	e.group, err = t.Connect(ctx, distributed.Link{Rank: rank, Size: 2, GroupID: "bench", Epoch: 1,
		Token: make([]byte, 32), Addrs: addrs, OpTimeout: time.Minute})
	return err
}

// Kinds of rounds. In each, a rank sends size bytes and receives size bytes; in a gather
// and its bare form rank 1 sends and rank 0 receives.
const (
	bareExchange  = 'b'
	bareGather    = 'o'
	allReduce     = 'c'
	reduceScatter = 's'
	allGather     = 'v'
	gather        = 'g'
)

// turn runs rounds of one kind.
func (e *ends) turn(kind byte, size int) (time.Duration, error) {
	out, in := make([]byte, 2*size), make([]byte, 2*size)
	ctx, rank, parts := context.Background(), e.group.Rank(), []int{size, size}
	own := in[rank*size:][:size]
	round := map[byte]func() error{
		bareExchange: func() error {
			sent := make(chan error, 1)
			write := func() { _, err := e.plain.Write(out[:size]); sent <- err }
			if size > 64<<10 { // more than the system buffers
				go write()
			} else {
				write()
			}
			if _, err := io.ReadFull(e.plain, in[:size]); err != nil {
				return err
			}
			return <-sent
		},
		bareGather: func() error {
			if rank == 1 {
				_, err := e.plain.Write(out[:size])
				return err
			}
			_, err := io.ReadFull(e.plain, in[:size])
			return err
		},
		allReduce:     func() error { return e.group.StartAllSum(ctx, in[:size], out[:size], distributed.Float16).Wait() },
		reduceScatter: func() error { return e.group.StartReduceScatter(ctx, own, out, parts, distributed.Float16).Wait() },
		allGather:     func() error { return e.group.StartAllGatherV(ctx, in, parts).Wait() },
		gather:        func() error { return e.group.StartGather(ctx, in, own, parts, 0).Wait() },
	}[kind]
	begun := time.Now()
	for range turnRounds(size) {
		if err := round(); err != nil {
			return 0, err
		}
	}
	return time.Since(begun), nil
}

// runPeer is the main function of the other process: it runs the turns that it is
// ordered to.
func runPeer(addr string) error {
	var e ends
	var err error
	if e.orders, err = net.Dial("tcp", addr); err != nil {
		return err
	}
	if e.plain, err = net.Dial("tcp", addr); err != nil {
		return err
	}
	if err := e.join(1); err != nil {
		return err
	}
	for {
		var order [6]byte
		if _, err := io.ReadFull(e.orders, order[:]); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		place := unpin(runtime.NumCPU())
		if order[1] == 1 {
			place = pin(runtime.NumCPU() - 1)
		}
		if place != nil {
			return place
		}
		if _, err := e.turn(order[0], int(binary.LittleEndian.Uint32(order[2:]))); err != nil {
			return err
		}
	}
}

// withPeer runs a benchmark with another process as rank 1.
func withPeer(b *testing.B, run func(e *ends)) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	defer ln.Close()
	peer := exec.CommandContext(b.Context(), os.Args[0])
	peer.Env = append(os.Environ(), benchPeer+"="+ln.Addr().String())
	peer.Stderr = os.Stderr
	require.NoError(b, peer.Start())
	var e ends
	e.orders, err = ln.Accept()
	require.NoError(b, err)
	e.plain, err = ln.Accept()
	require.NoError(b, err)
	require.NoError(b, e.join(0))
	defer func() {
		require.NoError(b, e.orders.Close())
		require.NoError(b, peer.Wait())
	}()
	run(&e)
}

// BenchmarkCombineProcesses times the combine between two processes, which is
// how ranks run, alternating with the bare exchange of the same bytes over a
// plain connection between them.
func BenchmarkCombineProcesses(b *testing.B) {
	withPeer(b, func(e *ends) {
		for _, apart := range []bool{true, false} {
			for _, size := range []int{2 << 10, 16 << 10, 64 << 10} {
				name := "free"
				if apart {
					name = "apart"
				}
				b.Run(fmt.Sprintf("%s/KiB=%d", name, size>>10), func(b *testing.B) { e.measure(b, apart, size, bareExchange, allReduce) })
			}
		}
	})
}

// BenchmarkCollectiveProcesses is the same for the other collectives, each process on
// its own processor.
func BenchmarkCollectiveProcesses(b *testing.B) {
	withPeer(b, func(e *ends) {
		for _, c := range []struct {
			name       string
			bare, kind byte
		}{{"reduce-scatter", bareExchange, reduceScatter}, {"all-gather-v", bareExchange, allGather}, {"gather", bareGather, gather}} {
			for _, size := range []int{16 << 10, 4 << 20} {
				b.Run(fmt.Sprintf("%s/KiB=%d", c.name, size>>10), func(b *testing.B) { e.measure(b, true, size, c.bare, c.kind) })
			}
		}
	})
}

// measure runs turns of both kinds. With apart, each process has a processor of
// its own, like ranks on two hosts; otherwise the kernel may put both on one
// processor, which makes an exchange cheap and overlapping computation
// impossible.
func (e *ends) measure(b *testing.B, apart bool, size int, kinds ...byte) {
	if apart && runtime.NumCPU() > 1 {
		require.NoError(b, pin(0))
		defer func() { require.NoError(b, unpin(runtime.NumCPU())) }()
	}
	var took [2]time.Duration
	n := 0
	for first := true; first || n < b.N; {
		for i, kind := range kinds {
			order := binary.LittleEndian.AppendUint32([]byte{kind, boolByte(apart)}, uint32(size))
			_, err := e.orders.Write(order)
			require.NoError(b, err)
			d, err := e.turn(kind, size)
			require.NoError(b, err)
			if !first {
				took[i] += d
			}
		}
		if !first {
			n += turnRounds(size)
		}
		first = false
	}
	us := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / float64(n) / 1e3 }
	b.ReportMetric(us(took[0]), "bare-us")
	b.ReportMetric(us(took[1]), "combine-us")
	b.ReportMetric(float64(took[1])/float64(took[0]), "ratio")
}

func boolByte(b bool) byte {
	if b {
		return 1
	}
	return 0
}
