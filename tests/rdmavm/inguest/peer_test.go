//go:build linux && cgo

package inguest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed/rdma/verbs"
	"ringmaster/internal/testenv"
)

// peerConfig says what the process at the other end does: it echoes Count
// messages of Size bytes, each after it has arrived, and then waits to be
// ended.
type peerConfig struct {
	Device string
	Type   verbs.QPType
	Size   int
	Count  int
}

// servePeer is that process. It exchanges lines of JSON with its parent: it
// sends its address, receives the parent's, and sends true when it is connected
// and again when it has echoed its messages.
func servePeer(config string) error {
	var c peerConfig
	if err := json.Unmarshal([]byte(config), &c); err != nil {
		return err
	}
	e, err := openEnd(c.Device, c.Type, 2*c.Size)
	if err != nil {
		return err
	}
	out, in := json.NewEncoder(os.Stdout), json.NewDecoder(os.Stdin)
	// A receive is always posted before the peer can know that it may send.
	if err := e.recv(0, 0, c.Size); err != nil {
		return err
	}
	if err := out.Encode(e.address()); err != nil {
		return err
	}
	var to address
	if err := in.Decode(&to); err != nil {
		return err
	}
	if err := e.connect(to, verbs.DefaultRetries); err != nil {
		return err
	}
	if err := out.Encode(true); err != nil {
		return err
	}
	if err := echo(e, c.Size, c.Count, false); err != nil {
		return err
	}
	if err := out.Encode(true); err != nil {
		return err
	}
	// The queue pair must exist until the parent has received all answers.
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	return e.close()
}

// echo plays ping-pong, count messages each way, as the side that begins or the
// other. A receive of size bytes at 0 is posted; messages are sent from offset
// size.
func echo(e *end, size, count int, first bool) error {
	if first {
		if err := e.send(1, size, size); err != nil {
			return err
		}
	}
	deadline := time.Now().Add(3 * limit)
	wcs := make([]verbs.WC, 2)
	// The completions of an incoming message and of the one sent before it
	// arrive in either order.
	for in, out, idle := 0, 0, 0; in < count || out < count; {
		n, err := e.cq.Poll(wcs)
		if err != nil {
			return err
		}
		if n == 0 {
			if idle++; idle%4096 == 0 && time.Now().After(deadline) {
				return fmt.Errorf("ping-pong: %d of %d messages came in, %d went out", in, count, out)
			}
			continue
		}
		if wc, bad := verbs.Cause(wcs[:n]); bad {
			return verbs.NewCompletionError(wc)
		}
		for _, wc := range wcs[:n] {
			if wc.ID != 0 {
				out++
				continue
			}
			in++
			answer := !first || in < count
			if answer {
				copy(e.mr.Bytes()[size:2*size], e.mr.Bytes()[:size])
			}
			if in < count {
				if err := e.recv(0, 0, size); err != nil {
					return err
				}
			}
			if answer {
				if err := e.send(1, size, size); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// peer is that process as seen by the parent.
type peer struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *json.Decoder
}

// startPeer starts the process and connects an end of this one to it.
func startPeer(t *testing.T, c peerConfig, device string, r verbs.Retries) (*peer, *end) {
	t.Helper()
	text := testenv.JSON(t, c)
	ctx, cancel := context.WithTimeout(t.Context(), 3*limit)
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Env = append(os.Environ(), peerVariable+"="+string(text))
	cmd.Stderr = os.Stderr
	cmd.WaitDelay = time.Second
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	p := &peer{cmd: cmd, in: in, out: json.NewDecoder(bufio.NewReader(out))}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // end has checked the result, or the test killed it on purpose
	})
	e, err := openEnd(device, c.Type, 2*c.Size)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.close()) })
	require.NoError(t, e.recv(0, 0, c.Size))
	var to address
	require.NoError(t, p.out.Decode(&to))
	require.NoError(t, e.connect(to, r))
	require.NoError(t, json.NewEncoder(in).Encode(e.address()))
	p.wait(t) // it is ready for messages
	return p, e
}

// wait waits for the peer's next message.
func (p *peer) wait(t *testing.T) {
	t.Helper()
	var ok bool
	require.NoError(t, p.out.Decode(&ok))
	require.True(t, ok)
}

// end lets the peer exit by itself and requires success.
func (p *peer) end(t *testing.T) {
	t.Helper()
	p.wait(t)
	require.NoError(t, p.in.Close())
	require.NoError(t, p.cmd.Wait())
}

// kill kills the peer with SIGKILL.
func (p *peer) kill(t *testing.T) {
	t.Helper()
	require.NoError(t, p.cmd.Process.Kill())
	var exit *exec.ExitError
	require.True(t, errors.As(p.cmd.Wait(), &exit))
}
