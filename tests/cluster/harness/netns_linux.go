package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// netnsDir is where `ip netns` keeps the names of namespaces.
const netnsDir = "/run/netns"

// Net is a small network: a network namespace for each rank, its host, connected by
// a switch in another namespace. It is isolated from the real network.
//
//	rank r: eth0 10.77.0.(r+1)/24 --- port<r> of the switch
type Net struct {
	prefix string // of the namespaces' names
	size   int
	cables []*cable // of Delay
}

var netCount atomic.Uint32

// NetAvailable returns why network namespaces cannot be created here, nil if they
// can.
func NetAvailable() error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("network namespaces need root")
	}
	for _, tool := range []string{"ip", "tc"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("%s is not installed (Debian: iproute2)", tool)
		}
	}
	n, err := NewNet(1)
	if err != nil {
		return err
	}
	return n.Close()
}

// NewNet creates a network of hosts. It first removes networks left behind by
// processes that no longer exist.
func NewNet(size int) (*Net, error) {
	removeOld()
	n := &Net{prefix: fmt.Sprintf("rmtest%d-%d-", os.Getpid(), netCount.Add(1)), size: size}
	if err := n.make(); err != nil {
		_ = n.Close()
		return nil, err
	}
	return n, nil
}

func (n *Net) make() error {
	hub := n.prefix + "hub"
	commands := [][]string{
		{"netns", "add", hub},
		{"-n", hub, "link", "set", "lo", "up"},
		{"-n", hub, "link", "add", "switch", "type", "bridge"},
		{"-n", hub, "link", "set", "switch", "up"},
	}
	for r := range n.size {
		host, port := n.host(r), n.port(r)
		commands = append(commands, [][]string{
			{"netns", "add", host},
			{"-n", host, "link", "set", "lo", "up"},
			{"-n", host, "link", "add", "eth0", "type", "veth", "peer", "name", port, "netns", hub},
			{"-n", host, "addr", "add", n.Addr(r) + "/24", "dev", "eth0"},
			{"-n", host, "link", "set", "eth0", "up"},
			{"-n", hub, "link", "set", port, "master", "switch"},
			{"-n", hub, "link", "set", port, "up"},
		}...)
	}
	for _, args := range commands {
		if err := tool("ip", args...); err != nil {
			return err
		}
	}
	return nil
}

// Second connects a rank's host to a second network too, in which it has the address
// 10.78.0.(r+1) on eth1.
func (n *Net) Second(rank int) error {
	hub, host, port := n.prefix+"hub", n.host(rank), n.port(rank)+"b"
	commands := [][]string{
		{"-n", host, "link", "add", "eth1", "type", "veth", "peer", "name", port, "netns", hub},
		{"-n", host, "addr", "add", n.SecondAddr(rank) + "/24", "dev", "eth1"},
		{"-n", host, "link", "set", "eth1", "up"},
		{"-n", hub, "link", "set", port, "master", "second"},
		{"-n", hub, "link", "set", port, "up"},
	}
	if tool("ip", "-n", hub, "link", "show", "second") != nil {
		commands = append([][]string{
			{"-n", hub, "link", "add", "second", "type", "bridge"},
			{"-n", hub, "link", "set", "second", "up"},
		}, commands...)
	}
	for _, args := range commands {
		if err := tool("ip", args...); err != nil {
			return err
		}
	}
	return nil
}

// SecondAddr returns the address of a rank's host in the second network.
func (n *Net) SecondAddr(rank int) string { return fmt.Sprintf("10.78.0.%d", rank+1) }

// Prefix returns the common prefix of the namespaces' names; the rank follows it.
func (n *Net) Prefix() string { return n.prefix }

func (n *Net) host(rank int) string { return n.prefix + strconv.Itoa(rank) }
func (n *Net) port(rank int) string { return "port" + strconv.Itoa(rank) }

// Addr returns the address of a rank's host.
func (n *Net) Addr(rank int) string { return fmt.Sprintf("10.77.0.%d", rank+1) }

// Command returns the command line that runs argv on the host of a rank, in one
// process.
func (n *Net) Command(rank int, argv ...string) []string {
	return append([]string{"ip", "netns", "exec", n.host(rank)}, argv...)
}

// Cut unplugs the rank's cable from the switch; Restore plugs it in again. The
// rank's connections stay open and neither end is notified.
func (n *Net) Cut(rank int) error {
	return tool("ip", "-n", n.prefix+"hub", "link", "set", n.port(rank), "down")
}

// Restore undoes Cut.
func (n *Net) Restore(rank int) error {
	return tool("ip", "-n", n.prefix+"hub", "link", "set", n.port(rank), "up")
}

// Partition drops everything between two ranks; both still reach all others. Heal undoes
// it. Their connections stay open and neither end is notified.
func (n *Net) Partition(a, b int) error {
	return n.between(a, b, func(addr string) []string {
		// Frames go to a host that does not exist.
		return []string{"neigh", "replace", addr, "lladdr", "02:00:00:00:00:01", "dev", "eth0", "nud", "permanent"}
	})
}

// Heal undoes Partition.
func (n *Net) Heal(a, b int) error {
	return n.between(a, b, func(addr string) []string { return []string{"neigh", "del", addr, "dev", "eth0"} })
}

// between runs an ip command on each of two hosts with the address of the other.
func (n *Net) between(a, b int, args func(addr string) []string) error {
	for _, x := range [][2]int{{a, b}, {b, a}} {
		if err := tool("ip", append([]string{"-n", n.host(x[0])}, args(n.Addr(x[1]))...)...); err != nil {
			return err
		}
	}
	return nil
}

// Down disables the rank's own interface: its sends fail at once.
func (n *Net) Down(rank int) error {
	return tool("ip", "-n", n.host(rank), "link", "set", "eth0", "down")
}

// Up undoes Down.
func (n *Net) Up(rank int) error {
	return tool("ip", "-n", n.host(rank), "link", "set", "eth0", "up")
}

// Slow limits what the rank sends and receives to a rate such as "2mbit", with a
// queue of up to 400 ms.
func (n *Net) Slow(rank int, rate string) error {
	limit := []string{"root", "tbf", "rate", rate, "burst", "16kb", "latency", "400ms"}
	if err := tool("tc", append([]string{"-n", n.host(rank), "qdisc", "replace", "dev", "eth0"}, limit...)...); err != nil {
		return err
	}
	return tool("tc", append([]string{"-n", n.prefix + "hub", "qdisc", "replace", "dev", n.port(rank)}, limit...)...)
}

// Fast undoes Slow.
func (n *Net) Fast(rank int) error {
	if err := tool("tc", "-n", n.host(rank), "qdisc", "del", "dev", "eth0", "root"); err != nil {
		return err
	}
	return tool("tc", "-n", n.prefix+"hub", "qdisc", "del", "dev", n.port(rank), "root")
}

// Listening lists the listening TCP sockets on the host of a rank, one per line.
func (n *Net) Listening(ctx context.Context, rank int) (string, error) {
	argv := n.Command(rank, "ss", "-H", "-tln")
	out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).Output()
	return strings.TrimSpace(string(out)), err
}

// Dialer opens connections on the host of a rank.
func (n *Net) Dialer(rank int) Dialer { return inNamespace(n.host(rank)) }

// inNamespace dials from a network namespace: a socket stays in the namespace in
// which it was created, whatever thread uses it later.
func inNamespace(name string) Dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		return inside(name, func() (net.Conn, error) { // DialContext ends with ctx
			return (&net.Dialer{}).DialContext(ctx, network, addr)
		})
	}
}

// inside calls f on a thread in a network namespace. The thread is never unlocked, so that
// it exits with the goroutine and no other goroutine runs in the namespace.
func inside[T any](namespace string, f func() (T, error)) (value T, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		var ns *os.File
		if ns, err = os.Open(filepath.Join(netnsDir, namespace)); err != nil {
			return
		}
		defer ns.Close()
		if err = unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			err = fmt.Errorf("entering namespace %s: %w", namespace, err)
			return
		}
		value, err = f()
	}()
	<-done
	return value, err
}

// Close removes the network. Its processes must have exited.
func (n *Net) Close() error {
	var all error
	for _, c := range n.cables {
		all = errors.Join(all, c.close())
	}
	n.cables = nil
	for _, name := range append(n.hosts(), n.prefix+"hub") {
		all = errors.Join(all, os.RemoveAll(filepath.Join(etcNetns, name)))
		if _, err := os.Stat(filepath.Join(netnsDir, name)); err == nil {
			all = errors.Join(all, tool("ip", "netns", "del", name))
		}
	}
	return all
}

func (n *Net) hosts() []string {
	var names []string
	for r := range n.size {
		names = append(names, n.host(r))
	}
	return names
}

// removeOld deletes the namespaces of test processes that were killed.
func removeOld() {
	entries, err := os.ReadDir(netnsDir)
	if err != nil {
		return // no namespace was ever created
	}
	for _, e := range entries {
		rest, ok := strings.CutPrefix(e.Name(), "rmtest")
		if !ok {
			continue
		}
		pid, err := strconv.Atoi(strings.SplitN(rest, "-", 2)[0])
		if err == nil && syscall.Kill(pid, 0) == syscall.ESRCH {
			_ = tool("ip", "netns", "del", e.Name()) // another process may have deleted it already
		}
	}
}

// tool runs a command; an error includes its output.
func tool(name string, args ...string) error {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}
