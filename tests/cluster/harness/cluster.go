//go:build unix

package harness

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"ringmaster/internal/testenv"
)

// Options configure a cluster.
type Options struct {
	Program string // path of the binary
	Size    int    // 1: a single server, without --distributed
	Model   string // file; "": the built-in model
	// Flags are added to those of every rank, RankFlags[r] to those of rank
	// r; the last of two wins. Without a --share the group divides the experts.
	Flags     []string
	RankFlags map[int][]string
	Net       *Net // the network of the ranks; nil: loopback
	// Via[r] is the coordinator's address that rank r gets in place of the real
	// one: that of a proxy.
	Via map[int]string
	Env []string // added to the environment of every rank
}

// Cluster is a group of ranks, each a process that can be started, signalled and
// restarted. It is used by one goroutine.
type Cluster struct {
	Options
	Coordinator string // address that rank 0 binds
	HTTP        string // address that rank 0 serves
	Client      *Client

	ranks   []*Process // [Size] the current process of each rank, nil if never started
	history []string   // logs of previous processes
}

// NewCluster chooses addresses but starts nothing.
func NewCluster(o Options) (*Cluster, error) {
	c := &Cluster{Options: o, ranks: make([]*Process, o.Size)}
	if o.Net != nil {
		// Every port is free, because no other program runs in the namespaces.
		c.Coordinator = net.JoinHostPort(o.Net.Addr(0), "7070")
		c.HTTP = "127.0.0.1:8080"
		c.Client = NewClient(c.HTTP, o.Net.Dialer(0))
		return c, nil
	}
	var err error
	if c.Coordinator, err = testenv.FreeAddr("127.0.0.1"); err != nil {
		return nil, err
	}
	if c.HTTP, err = testenv.FreeAddr("127.0.0.1"); err != nil {
		return nil, err
	}
	c.Client = NewClient(c.HTTP, nil)
	return c, nil
}

// Args returns the command line of a rank, by default that of serve.
func (c *Cluster) Args(rank int, command ...string) []string {
	if len(command) == 0 {
		command = []string{"serve"}
		if rank == 0 {
			command = append(command, "--listen", c.HTTP)
		}
	}
	args := append([]string{c.Program}, command...)
	args = append(args, "--threads", "1")
	if c.Model != "" {
		args = append(args, "--model", c.Model)
	}
	if c.Size > 1 {
		coordinator := c.Coordinator
		if via, ok := c.Via[rank]; ok {
			coordinator = via
		}
		args = append(args, "--distributed", "--rank", strconv.Itoa(rank), "--world-size", strconv.Itoa(c.Size),
			"--coordinator", coordinator, "--share", "experts") // the default would measure each group for two seconds
	}
	return slices.Concat(args, c.Flags, c.RankFlags[rank])
}

// Start starts ranks, or restarts them after they have exited.
func (c *Cluster) Start(ranks ...int) error {
	for _, rank := range ranks {
		if err := c.StartArgs(rank, c.Args(rank)); err != nil {
			return err
		}
	}
	return nil
}

// StartArgs starts a rank with the given command line.
func (c *Cluster) StartArgs(rank int, args []string) error {
	if p := c.ranks[rank]; p != nil {
		if p.Running() {
			return fmt.Errorf("rank %d is still running", rank)
		}
		c.keep(rank)
	}
	p, err := c.spawn(rank, args)
	if err != nil {
		return err
	}
	c.ranks[rank] = p
	return nil
}

func (c *Cluster) spawn(rank int, args []string) (*Process, error) {
	if c.Net != nil {
		args = c.Net.Command(rank, args...)
	}
	return StartProcess(c.Env, args...)
}

// StartAll starts every rank and waits until the cluster is ready.
func (c *Cluster) StartAll(ctx context.Context) error {
	for r := range c.Size {
		if err := c.Start(r); err != nil {
			return err
		}
	}
	return c.UntilReady(ctx)
}

// UntilReady waits until /readyz reports ready. It gives up when rank 0 exits.
func (c *Cluster) UntilReady(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	err := Until(ctx, "/readyz to report ready", func() (bool, string) {
		ok, text := c.Client.Ready(ctx)
		if !c.ranks[0].Running() {
			cancel()
			text = "rank 0 has exited"
		}
		return ok, text
	})
	return err
}

// UntilNotReady waits until /readyz reports not ready and returns its reason.
func (c *Cluster) UntilNotReady(ctx context.Context) (string, error) {
	reason := ""
	err := Until(ctx, "/readyz to report not ready", func() (bool, string) {
		ok, text := c.Client.Ready(ctx)
		reason = text
		return !ok && strings.Contains(text, "not ready"), text
	})
	return reason, err
}

// Rank returns the current process of a rank.
func (c *Cluster) Rank(r int) *Process { return c.ranks[r] }

// Signal sends a signal to a rank and returns the time just before.
func (c *Cluster) Signal(rank int, s syscall.Signal) (time.Time, error) {
	at := time.Now()
	return at, c.ranks[rank].Signal(s)
}

func (c *Cluster) keep(rank int) {
	p := c.ranks[rank]
	c.history = append(c.history, fmt.Sprintf("--- rank %d (pid %d): %s\n%s\n", rank, p.Pid(), strings.Join(p.Args, " "), p.Log))
}

// Logs returns the output of all ranks, previous processes first.
func (c *Cluster) Logs() string {
	kept := len(c.history)
	for r, p := range c.ranks {
		if p != nil {
			c.keep(r)
		}
	}
	all := strings.Join(c.history, "")
	c.history = c.history[:kept]
	return all
}

// Close kills every rank and waits until it has exited. It may be called again.
func (c *Cluster) Close() {
	for _, p := range c.ranks {
		if p != nil {
			p.End()
		}
	}
}
