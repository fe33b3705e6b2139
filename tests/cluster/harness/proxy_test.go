//go:build unix

package harness

import (
	"bufio"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
)

// echo starts a server that echoes every line and returns its address.
func echo(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for lines := bufio.NewReader(c); ; {
					line, err := lines.ReadString('\n')
					if err != nil {
						return
					}
					if _, err := c.Write([]byte(line)); err != nil {
						return
					}
				}
			}()
		}
	}()
	return l.Addr().String()
}

func dial(t *testing.T, p *Proxy) (net.Conn, *bufio.Reader) {
	c, err := net.Dial("tcp", p.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(20*time.Second)))
	return c, bufio.NewReader(c)
}

// roundTrip sends a line and requires its echo.
func roundTrip(t *testing.T, c net.Conn, r *bufio.Reader, line string) {
	t.Helper()
	_, err := c.Write([]byte(line + "\n"))
	require.NoError(t, err)
	got, err := r.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, line+"\n", got)
}

func TestProxy(t *testing.T) {
	p, err := NewProxy("127.0.0.1:0", echo(t))
	require.NoError(t, err)
	defer func() { require.NoError(t, p.Close()) }()
	ctx := testenv.Within(t, 20*time.Second)

	c, r := dial(t, p)
	roundTrip(t, c, r, "one")
	require.NoError(t, p.Passed(ctx, 8))

	p.Delay(50 * time.Millisecond)
	start := time.Now()
	roundTrip(t, c, r, "two")
	require.GreaterOrEqual(t, time.Since(start), 100*time.Millisecond, "round trip")
	p.Delay(0)
	roundTrip(t, c, r, "three")

	// Half-open: no data arrives, and no end of the connection either.
	p.Swallow()
	_, err = c.Write([]byte("lost\n"))
	require.NoError(t, err)
	require.NoError(t, c.SetReadDeadline(time.Now().Add(100*time.Millisecond)))
	_, err = r.ReadString('\n')
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)

	p.Drop()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(20*time.Second)))
	_, err = r.ReadString('\n')
	require.Error(t, err)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "Drop closes")
	d, rd := dial(t, p)
	roundTrip(t, d, rd, "again")
}
