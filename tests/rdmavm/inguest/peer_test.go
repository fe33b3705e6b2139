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
)

// peerConfig is what the process at the other end does: it sends Count messages
// of Size bytes back, each after it has come, and then waits to be ended.
type peerConfig struct {
	Device string
	Type   verbs.QPType
	Size   int
	Count  int
}

// servePeer is that process. It speaks with its parent in lines of JSON: its
// address, then the parent's, then true when it is connected, and true again
// when it has done its messages.
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
	// Room for one is always there before the peer can know of it.
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
	// Until the parent has seen all answers the queue pair must live.
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	return e.close()
}

// echo plays ping-pong, count messages each way, as the one that begins or the
// other. A receive of size bytes at 0 is posted; messages go out from size on.
func echo(e *end, size, count int, first bool) error {
	if first {
		if err := e.send(1, size, size); err != nil {
			return err
		}
	}
	deadline := time.Now().Add(3 * limit)
	wcs := make([]verbs.WC, 2)
	// A message that comes in and the completion of the one that went out come
	// in either order.
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

// peer is that process as the parent sees it.
type peer struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *json.Decoder
}

// startPeer starts the process and connects an end of this one to it.
func startPeer(t *testing.T, c peerConfig, device string, r verbs.Retries) (*peer, *end) {
	t.Helper()
	text, err := json.Marshal(c)
	require.NoError(t, err)
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
		_ = cmd.Wait() // end has looked at it, or the test wanted it dead
	})
	e, err := openEnd(device, c.Type, 2*c.Size)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.close()) })
	require.NoError(t, e.recv(0, 0, c.Size))
	var to address
	require.NoError(t, p.out.Decode(&to))
	require.NoError(t, e.connect(to, r))
	require.NoError(t, json.NewEncoder(in).Encode(e.address()))
	p.wait(t) // it may be sent to
	return p, e
}

// wait is for the peer's next word.
func (p *peer) wait(t *testing.T) {
	t.Helper()
	var ok bool
	require.NoError(t, p.out.Decode(&ok))
	require.True(t, ok)
}

// end lets the peer end by itself, and well.
func (p *peer) end(t *testing.T) {
	t.Helper()
	p.wait(t)
	require.NoError(t, p.in.Close())
	require.NoError(t, p.cmd.Wait())
}

// kill ends the peer as the kernel would.
func (p *peer) kill(t *testing.T) {
	t.Helper()
	require.NoError(t, p.cmd.Process.Kill())
	var exit *exec.ExitError
	require.True(t, errors.As(p.cmd.Wait(), &exit))
}
