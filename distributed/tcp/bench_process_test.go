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

// benchRounds is the number of rounds in a turn.
const benchRounds = 500

// ends is what one process measures with: a connection for orders, a plain
// connection, a group.
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

// turn runs rounds of one kind: 'b' for the bare exchange, 'c' for the combine.
func (e *ends) turn(kind byte, size int) (time.Duration, error) {
	out, in := make([]byte, size), make([]byte, size)
	begun := time.Now()
	for range benchRounds {
		if kind == 'c' {
			if err := e.group.StartAllSum(context.Background(), in, out, distributed.Float16).Wait(); err != nil {
				return 0, err
			}
			continue
		}
		if _, err := e.plain.Write(out); err != nil {
			return 0, err
		}
		if _, err := io.ReadFull(e.plain, in); err != nil {
			return 0, err
		}
	}
	return time.Since(begun), nil
}

// runPeer is the main function of the other process: it runs the turns that it
// is told to.
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

// BenchmarkCombineProcesses times the combine between two processes, which is
// how ranks run, alternating with the bare exchange of the same bytes over a
// plain connection between them.
func BenchmarkCombineProcesses(b *testing.B) {
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
	for _, apart := range []bool{true, false} {
		for _, size := range []int{2 << 10, 16 << 10, 64 << 10} {
			name := "free"
			if apart {
				name = "apart"
			}
			b.Run(fmt.Sprintf("%s/KiB=%d", name, size>>10), func(b *testing.B) { e.measure(b, apart, size) })
		}
	}
}

// measure runs turns of both kinds. With apart, each process has a processor of
// its own, like ranks on two hosts; otherwise the kernel may put both on one
// processor, which makes an exchange cheap and overlapping computation
// impossible.
func (e *ends) measure(b *testing.B, apart bool, size int) {
	if apart && runtime.NumCPU() > 1 {
		require.NoError(b, pin(0))
		defer func() { require.NoError(b, unpin(runtime.NumCPU())) }()
	}
	var took [2]time.Duration
	n := 0
	for first := true; first || n < b.N; {
		for i, kind := range []byte{'b', 'c'} {
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
			n += benchRounds
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
