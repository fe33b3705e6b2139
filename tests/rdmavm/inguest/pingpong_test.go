//go:build linux && cgo

package inguest

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/distributed/rdma"
	"ringmaster/distributed/rdma/verbs"
	"ringmaster/internal/testenv"
	"ringmaster/tests/rdmavm/job"
)

// pingpongs are the programs of libibverbs by service type.
var pingpongs = map[verbs.QPType]string{verbs.RC: "/bin/ibv_rc_pingpong", verbs.UC: "/bin/ibv_uc_pingpong"}

// theirs runs the ping-pong program of libibverbs between the devices of two
// ports, with the data checked, and returns the time of one round trip as it
// prints it.
func theirs(t *testing.T, kind verbs.QPType, size, count int) time.Duration {
	t.Helper()
	const port = 18515
	ctx := testenv.Within(t, 2*limit)
	args := []string{"-g", "1", "-m", "4096", "-c", "-s", strconv.Itoa(size), "-n", strconv.Itoa(count), "-p", strconv.Itoa(port), "-d"}
	server := exec.CommandContext(ctx, pingpongs[kind], append(args, job.Device(0, 1))...)
	var said bytes.Buffer
	server.Stdout, server.Stderr = &said, &said
	require.NoError(t, server.Start())
	until(t, "the server listens", func() bool { return listens(t, port) })
	out, err := exec.CommandContext(ctx, pingpongs[kind], append(args, job.Device(0, 0), "127.0.0.1")...).CombinedOutput()
	if err != nil {
		_ = server.Process.Kill() // it may still wait for a client that has ended
	}
	serverErr := server.Wait()
	require.NoError(t, err, "%s", out)
	require.NoError(t, serverErr, "%s", said.Bytes())
	require.NotContains(t, string(out)+said.String(), "invalid data")
	m := regexp.MustCompile(`= ([\d.]+) usec/iter`).FindSubmatch(out)
	require.NotNil(t, m, "%s", out)
	us, err := strconv.ParseFloat(string(m[1]), 64)
	require.NoError(t, err)
	return time.Duration(us * float64(time.Microsecond))
}

// listens tells whether a TCP socket of this host listens on the port, from the
// kernel's table: the port in hex digits after the address, state 0A.
func listens(t *testing.T, port int) bool {
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text := testenv.ReadFile(t, table)
		for _, line := range strings.Split(string(text), "\n") {
			f := strings.Fields(line)
			if len(f) > 3 && f[3] == "0A" && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) {
				return true
			}
		}
	}
	return false
}

// ours runs ping-pong through package verbs, with a process at the other end.
func ours(t *testing.T, kind verbs.QPType, size, count int) time.Duration {
	t.Helper()
	p, e := startPeer(t, peerConfig{Device: job.Device(0, 1), Type: kind, Size: size, Count: count}, job.Device(0, 0), verbs.DefaultRetries)
	start := time.Now()
	require.NoError(t, echo(e, size, count, true))
	took := time.Since(start) / time.Duration(count)
	p.end(t)
	return took
}

// groups runs ping-pong between two ranks of a group: one message sent and one
// received, through the transport's engine.
func groups(t *testing.T, kind verbs.QPType, size, count int) time.Duration {
	t.Helper()
	n := network{ranks: 2, rails: 1, kind: kind}
	all := n.connect(t, func(_ int, o *rdma.Options, _ *distributed.Link) { o.Tuning.Spin = 0 })
	play := func(g *distributed.Group, count int) error {
		buf, other := make([]byte, size), 1-g.Rank()
		for range count {
			if g.Rank() == 0 {
				if err := g.Send(t.Context(), buf, other); err != nil {
					return err
				}
			}
			if err := g.Recv(t.Context(), buf, other); err != nil {
				return err
			}
			if g.Rank() == 1 {
				if err := g.Send(t.Context(), buf, other); err != nil {
					return err
				}
			}
		}
		return nil
	}
	errs := make(chan error, 1)
	var took time.Duration
	go func() { errs <- errors.Join(play(all[1], 1), play(all[1], count)) }()
	err := play(all[0], 1) // this makes the plans
	if err == nil {
		start := time.Now()
		err = play(all[0], count)
		took = time.Since(start)
	}
	require.NoError(t, errors.Join(err, <-errs))
	for _, g := range all {
		require.NoError(t, g.Close())
	}
	return took / time.Duration(count)
}

// TestPingPong: the programs of libibverbs work between the two devices, so
// failures elsewhere are ours. It also prints their round-trip time beside those
// of package verbs and of a group, the best of three of each, taken alternately.
// No figure decides the test.
func TestPingPong(t *testing.T) {
	const count = 200
	for _, kind := range kinds {
		for _, size := range []int{64, 4096, 16 << 10} {
			t.Run(fmt.Sprintf("%v, %d bytes", kind, size), func(t *testing.T) {
				a, b, c := time.Hour, time.Hour, time.Hour
				for range 3 {
					a, b = min(a, theirs(t, kind, size, count)), min(b, ours(t, kind, size, count))
					c = min(c, groups(t, kind, size, count))
				}
				t.Logf("a round of %v, %d bytes: %v by %s, %v by package verbs: %.2f of it, %v by a group: %.2f of it",
					kind, size, a, pingpongs[kind], b, float64(b)/float64(a), c, float64(c)/float64(a))
			})
		}
	}
}
