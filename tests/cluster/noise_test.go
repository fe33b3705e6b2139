//go:build unix

package cluster

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
	"ringmaster/tests/cluster/harness"
)

// dataAddr finds the address of a rank's data plane in the table that rank 0 has
// printed: a line "rank [first, last) ... address".
func (b *bed) dataAddr(rank int) string {
	line := b.waitLog(0, 0, fmt.Sprintf(`^\s*%d\s+\[.*\d:\d+$`, rank))
	return regexp.MustCompile(`\S+:\d+$`).FindString(line)
}

// sendGarbage opens n connections to an address for each kind of garbage and sends
// it; some connections send nothing and stay open until the end of the test.
func sendGarbage(t *testing.T, addr string, n int) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 1))
	noise := make([]byte, 64<<10)
	for i := range noise {
		noise[i] = byte(r.Uint32())
	}
	zeros := make([]byte, 64<<10)
	for range n {
		for _, data := range [][]byte{nil, {0}, []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), noise, zeros, noise[:7]} {
			c, err := net.DialTimeout("tcp", addr, hangLimit)
			require.NoError(t, err)
			t.Cleanup(func() { c.Close() })
			require.NoError(t, c.SetDeadline(time.Now().Add(hangLimit)))
			_, _ = c.Write(data) // the other side may have closed already
			if len(data) > 100 {
				// The other side must close the connection.
				_, err := io.Copy(io.Discard, c)
				require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "%s does not close a connection with garbage", addr)
			}
		}
	}
}

// TestGarbage sends garbage to the ports of the cluster while it forms and while it
// answers.
func TestGarbage(t *testing.T) {
	testenv.Need(t, testenv.Full, "garbage sent to a cluster's ports")
	t.Parallel()
	b := newBed(t, harness.Options{Size: 2, Model: model(t, slowModel)})
	require.NoError(t, b.Start(0))
	b.waitLog(0, 0, "waiting for the other ranks")
	sendGarbage(t, b.Coordinator, 8) // more than the limit of concurrent handshakes
	require.NoError(t, b.Start(1))
	b.ready()
	b.requireAnswer(brief)

	u := b.begin(phase{"decode", longAnswer})
	sendGarbage(t, b.Coordinator, 1)
	sendGarbage(t, b.dataAddr(0), 1)
	sendGarbage(t, b.dataAddr(1), 1)
	b.requireWhole(u, longAnswer)
	b.othersRun(-1)
}

// viaProxy is a cluster in which rank 1 reaches rank 0's control port through a
// proxy.
func viaProxy(t *testing.T, size int, flags []string) (*bed, *harness.Proxy) {
	b := newBed(t, harness.Options{Size: size, Model: model(t, slowModel), Flags: flags})
	p, err := harness.NewProxy("127.0.0.1:0", b.Coordinator)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	b.Via = map[int]string{1: p.Addr()}
	return b, p
}

// TestHalfOpen tests a connection that stays open but no longer carries data.
func TestHalfOpen(t *testing.T) {
	testenv.Need(t, testenv.Full, "silent connections")
	t.Parallel()
	b, p := viaProxy(t, 2, waits)
	halfOpen := fault{"half-open", false, detectSilent,
		func(*bed, int) { p.Swallow() },
		func(*bed, int) { p.Drop() }}
	b.form()
	b.requireAnswer(brief)
	struck := phases[2:]
	if testenv.Rest(t, testenv.Full, "a silent connection of an idle cluster") {
		struck = append(struck, phases[0])
		if testenv.Rest(t, testenv.Exhaustive, "a silent connection in a prefill") {
			struck = append(struck, phases[1])
		}
	}
	for _, ph := range struck {
		if !t.Run(ph.name, func(t *testing.T) { b.on(t).survive(halfOpen, ph, 1) }) {
			return
		}
	}
	// A closed connection.
	t.Run("closed", func(t *testing.T) {
		b := b.on(t)
		u := b.begin(phase{"decode", longAnswer})
		p.Drop()
		<-u.done
		require.NoError(t, u.err)
		require.NotNil(t, u.answer.Err)
		requireRank(t, u.answer.Err.Message, 1)
		b.requirePrefix(u.answer, longAnswer)
		b.ready() // rank 1 reconnects by itself
		b.requireAnswer(brief)
		b.othersRun(-1)
	})
}

// TestHalfOpenWhileForming does the same after the hello: the group forms once the
// connection works again.
func TestHalfOpenWhileForming(t *testing.T) {
	testenv.Need(t, testenv.Full, "a silent connection while the group forms")
	t.Parallel()
	b, p := viaProxy(t, 3, waits)
	require.NoError(t, b.Start(0, 1))
	b.waitLog(1, 0, joined)
	p.Swallow()
	from := b.Rank(1).Log.Len()
	require.NoError(t, b.Start(2))
	b.waitLog(0, 0, named(1)+" at .* is gone: no heartbeat")
	b.waitLog(1, from, looking)
	p.Drop()
	b.ready()
	b.requireAnswer(brief)
	b.othersRun(-1)
}

// TestLatency checks that a control connection with 50 ms each way slows the
// cluster down but changes no token.
func TestLatency(t *testing.T) {
	testenv.Need(t, testenv.Full, "a control connection that gets slower")
	t.Parallel()
	b, p := viaProxy(t, 2, waits)
	p.Delay(50 * time.Millisecond)
	b.form()
	b.requireAnswer(brief)
	u := b.begin(phase{"decode", question{brief.prompt, brief.tokens}})
	p.Delay(200 * time.Millisecond)
	b.requireWhole(u, brief)
}

// TestDistance tests a rank that is 5 ms away on every connection, as over a bad
// wireless link, and then its loss.
func TestDistance(t *testing.T) {
	testenv.Need(t, testenv.Full, "a rank that is 5 ms away")
	t.Parallel()
	b := newBed(t, harness.Options{Size: 3, Model: model(t, slowModel), Net: network(t, 3), Flags: waits})
	require.NoError(t, b.Net.Delay(2, 5*time.Millisecond))
	b.form()
	start := time.Now()
	b.requireAnswer(brief)
	t.Logf("%d tokens after %d in %v", brief.tokens, brief.prompt, time.Since(start).Round(time.Millisecond))
	for _, f := range faults {
		if f.name == "cable pulled and replugged" {
			b.survive(f, phases[2], 2)
		}
	}
}

// TestSlowLink checks that the others wait for a rank behind a slow link, because
// it is alive.
func TestSlowLink(t *testing.T) {
	testenv.Need(t, testenv.Full, "a link of 8 Mbit/s")
	rates := []string{"8mbit"}
	if testenv.Rest(t, testenv.Exhaustive, "a link of 1 Mbit/s") {
		rates = append(rates, "1mbit")
	}
	for _, rate := range rates {
		t.Run(rate, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, harness.Options{Size: 2, Model: model(t, slowModel), Net: network(t, 2), Flags: quick})
			require.NoError(t, b.Net.Slow(1, rate))
			b.form() // slow from the start
			start := time.Now()
			b.requireAnswer(brief)
			t.Logf("with %s: %d tokens after %d in %v", rate, brief.tokens, brief.prompt, time.Since(start).Round(time.Millisecond))
			require.NoError(t, b.Net.Fast(1))
			start = time.Now()
			b.requireAnswer(brief)
			t.Logf("without: %v", time.Since(start).Round(time.Millisecond))

			u := b.begin(phase{"decode", longAnswer}) // slow in the middle, then not
			require.NoError(t, b.Net.Slow(1, rate))
			ctx, cancel := context.WithTimeout(b.ctx, detectSilent+2*time.Second)
			select {
			case <-u.done:
			case <-ctx.Done(): // longer than the timeout of a silent rank
			}
			cancel()
			require.NoError(t, b.Net.Fast(1))
			b.requireWhole(u, longAnswer)
			b.othersRun(-1)
		})
	}
}
