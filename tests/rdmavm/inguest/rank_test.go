//go:build linux && cgo

package inguest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/distributed/rdma"
	"ringmaster/distributed/rdma/verbs"
	"ringmaster/internal/testenv"
)

// rankVariable turns this program into one rank of a group: its value is a
// rankConfig.
const rankVariable = "RDMAVM_RANK"

// rankConfig is a network and the rank's number in it.
type rankConfig struct {
	Rank, Ranks, Rails int
	Ring               bool
	Type               verbs.QPType
}

// lost is how a rank's group ended.
type lost struct {
	Text string
	Peer int
	Gone bool // ErrPeerGone
	Took time.Duration
}

// serveRank is that process. It reports its address, receives those of all
// ranks, reports true after twenty correct sums, and then runs sums until one
// fails and reports how.
func serveRank(config string) error {
	var c rankConfig
	if err := json.Unmarshal([]byte(config), &c); err != nil {
		return err
	}
	n := network{ranks: c.Ranks, rails: c.Rails, ring: c.Ring, kind: c.Type}
	tr := rdma.New(n.options())
	at, err := tr.Listen("127.0.0.1")
	if err != nil {
		return err
	}
	out, in := json.NewEncoder(os.Stdout), json.NewDecoder(os.Stdin)
	if err := out.Encode(at); err != nil {
		return err
	}
	var addrs []string
	if err := in.Decode(&addrs); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 6*limit)
	defer cancel()
	g, err := tr.Connect(ctx, n.link(c.Rank, addrs))
	if err != nil {
		return err
	}
	buf := make([]byte, 64<<10)
	sum := func() error {
		for i := range buf {
			buf[i] = byte(i + c.Rank)
		}
		if err := g.AllSum(ctx, buf, buf, distributed.Uint8); err != nil {
			return err
		}
		for i, v := range buf {
			if want := byte(i*c.Ranks + c.Ranks*(c.Ranks-1)/2); v != want {
				return fmt.Errorf("byte %d is %d, not %d", i, v, want)
			}
		}
		return nil
	}
	for range 20 {
		if err := sum(); err != nil {
			return err
		}
	}
	if err := out.Encode(true); err != nil {
		return err
	}
	for {
		start := time.Now()
		err := sum()
		if err == nil {
			continue
		}
		l := lost{Text: err.Error(), Peer: -1, Gone: errors.Is(err, distributed.ErrPeerGone), Took: time.Since(start)}
		var op *distributed.OpError
		if errors.As(err, &op) {
			l.Peer = op.Peer
		}
		return errors.Join(out.Encode(l), g.Close(), tr.Close())
	}
}

// TestKilledRank: one process of a group is killed during sums; all others end
// with an error that names it, long before the deadline of a sum.
func TestKilledRank(t *testing.T) {
	for _, c := range []rankConfig{{Ranks: 2, Rails: 1}, {Ranks: 3, Rails: 1}, {Ranks: 4, Rails: 2, Ring: true}, {Ranks: 3, Rails: 1, Type: verbs.UC}} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			victim := c.Ranks - 1
			ctx := testenv.Within(t, 6*limit)
			ranks := make([]*peer, c.Ranks)
			addrs := make([]string, c.Ranks)
			for r := range ranks {
				c.Rank = r
				text := testenv.JSON(t, c)
				cmd := exec.CommandContext(ctx, "/proc/self/exe")
				cmd.Env = append(os.Environ(), rankVariable+"="+string(text))
				cmd.Stderr = os.Stderr
				cmd.WaitDelay = time.Second
				in, err := cmd.StdinPipe()
				require.NoError(t, err)
				out, err := cmd.StdoutPipe()
				require.NoError(t, err)
				require.NoError(t, cmd.Start())
				ranks[r] = &peer{cmd: cmd, in: in, out: json.NewDecoder(bufio.NewReader(out))}
				t.Cleanup(func() { _ = cmd.Wait() }) // the test has checked it, or has failed
				require.NoError(t, ranks[r].out.Decode(&addrs[r]))
			}
			for _, p := range ranks {
				require.NoError(t, json.NewEncoder(p.in).Encode(addrs))
			}
			for _, p := range ranks {
				p.wait(t)
			}
			ranks[victim].kill(t)
			for r, p := range ranks[:victim] {
				var l lost
				require.NoError(t, p.out.Decode(&l))
				t.Logf("rank %d after %v: %s", r, l.Took, l.Text)
				require.True(t, l.Gone, "rank %d: %s", r, l.Text)
				require.Equal(t, victim, l.Peer, "rank %d: %s", r, l.Text)
				require.Contains(t, l.Text, fmt.Sprintf("rank %d", victim))
				require.Less(t, l.Took, 2*limit, "rank %d waited for its deadline", r)
				require.NoError(t, p.cmd.Wait())
			}
		})
	}
}
