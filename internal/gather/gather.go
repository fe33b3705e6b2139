// Package gather makes a group of hosts that need no addresses: one host leads it (Lead), the
// others find it and take a seat (Join). What follows is a group as any other: package node
// runs its ranks, with the rank, the coordinator and the key of the seat.
//
//	host, err := gather.Lead(ctx, gather.LeadOptions{Name: "studio-a", Dir: dir, …})  // rank 0
//	seat, err := gather.Join(ctx, gather.JoinOptions{Code: "4KQ-M2X", …})             // the others
//
// A host that joins finds the group by multicast DNS (package discovery) or is told where it
// is, and proves that it knows the code which the leading host shows (package pairing). It then
// tries which of that host's addresses it reaches, and how fast, and copies the model if it has
// none (package fanout).
package gather

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"ringmaster/distributed/cluster"
	"ringmaster/distributed/control"
	"ringmaster/gguf"
	"ringmaster/groupplan"
	"ringmaster/internal/discovery"
	"ringmaster/internal/network"
	"ringmaster/internal/pairing"
	"ringmaster/internal/safetext"
	"ringmaster/internal/usage"
	"ringmaster/node"
)

// DefaultPort is where a desk listens, one more than the port of a coordinator.
const DefaultPort = 32324

// DefaultCoordinator is where rank 0 of a group listens for the other ranks.
const DefaultCoordinator = ":32323"

// LeadOptions configure the host that leads a group.
type LeadOptions struct {
	Name        string // of the group
	Dir         string // where its key and its hosts are kept, from StateDir
	Listen      string // HOST:PORT of the desk
	Coordinator string // HOST:PORT
	Encrypt     node.Encryption
	// Settings are flags, with their values, that all ranks must have alike.
	Settings map[string][]string
	Model    string // file of the model; "" for the built-in one
	// Ranks are those of the group as its leader sees them; nil before there is one.
	Ranks func() []cluster.RankStatus
	Out   io.Writer // for people
}

// Host leads a group.
type Host struct {
	o       LeadOptions
	KeyFile string // of the group
	key     []byte
	seats   *seats
	desk    *pairing.Desk
	files   []modelFile
	parts   []string // their paths
	port    int      // of the coordinator
	wg      sync.WaitGroup
	stop    context.CancelFunc

	mu      sync.Mutex // guards the rest, and Out
	guests  map[int]*guest
	network string // the address of this host that the ranks use; "" before the first
}

// Lead makes the group known and admits hosts, until ctx ends or Close.
func Lead(ctx context.Context, o LeadOptions) (_ *Host, err error) {
	h := &Host{o: o, guests: map[int]*guest{}}
	if err := h.describeModel(); err != nil {
		return nil, err
	}
	_, text, err := net.SplitHostPort(o.Coordinator)
	if err == nil {
		h.port, err = strconv.Atoi(text)
	}
	if err != nil || h.port == 0 {
		return nil, fmt.Errorf("--coordinator %s: expected HOST:PORT with a port that the other hosts can be told", o.Coordinator)
	}
	dir := filepath.Join(o.Dir, "groups", fileName(o.Name))
	if h.seats, err = openSeats(dir, o.Name); err != nil {
		return nil, err
	}
	if h.KeyFile, err = groupKey(dir); err != nil {
		return nil, err
	}
	if h.key, err = control.ReadKey(h.KeyFile); err != nil {
		return nil, err
	}
	ctx, h.stop = context.WithCancel(ctx)
	first, known := "", make(chan struct{}) // closed when the desk is
	h.desk, err = pairing.Open(ctx, pairing.DeskOptions{Group: h.seats.saved.Group, Key: h.key, Listen: o.Listen, Serve: h.serve,
		Code: func(code, why string) {
			if why == "" {
				first = code
				return
			}
			<-known
			h.sayCode(code, why)
		}})
	if err != nil {
		h.stop()
		return nil, fmt.Errorf("--join-listen: %w", err)
	}
	close(known)
	h.sayCode(first, "")
	if h.announced() {
		h.wg.Go(func() { discovery.Announce(ctx, h.seats.saved.Group.ID, o.Name, h.deskPort()) })
	}
	h.wg.Go(func() { h.watch(ctx) })
	return h, nil
}

// fileName is a name as that of a directory.
func fileName(name string) string {
	return strings.Map(func(r rune) rune {
		if r == '/' || r == os.PathSeparator || r == '.' || safetext.Unsafe(r) {
			return '_'
		}
		return r
	}, name)
}

// Close ends what Lead began.
func (h *Host) Close() {
	h.stop()
	h.desk.Close()
	h.wg.Wait()
}

// describeModel lists the files of the model.
func (h *Host) describeModel() error {
	if h.o.Model == "" {
		return nil
	}
	parts, err := gguf.Parts(h.o.Model)
	if err != nil {
		return usage.Wrap(err)
	}
	for _, p := range parts {
		info, err := os.Stat(p)
		if err != nil {
			return usage.Errorf("--model: %w", err)
		}
		h.files = append(h.files, modelFile{filepath.Base(p), info.Size()})
	}
	h.parts = parts
	return nil
}

func (h *Host) deskPort() int { return h.desk.Addr().(*net.TCPAddr).Port }

// announced reports whether other hosts can reach the desk.
func (h *Host) announced() bool { return !h.desk.Addr().(*net.TCPAddr).IP.IsLoopback() }

// addrs are the addresses at which other hosts may reach this one: those of the desk, which
// the coordinator has too unless it listens on one address.
func (h *Host) addrs() []network.Local {
	if ip := h.desk.Addr().(*net.TCPAddr).AddrPort().Addr().Unmap(); !ip.IsUnspecified() {
		return []network.Local{{Addr: ip}}
	}
	host, _, err := net.SplitHostPort(h.o.Coordinator)
	if ip, e := netip.ParseAddr(host); err == nil && e == nil && !ip.IsUnspecified() {
		return []network.Local{{Addr: ip}}
	}
	all := network.Reachable()
	return all[:min(len(all), mostAddrs)]
}

// local is one of the addresses, named without its zone; false if it is none.
func (h *Host) local(plain string) (netip.Addr, bool) {
	for _, l := range h.addrs() {
		if l.Addr.WithZone("").String() == plain {
			return l.Addr, true
		}
	}
	return netip.Addr{}, false
}

// sayCode tells people how to join.
func (h *Host) sayCode(code, why string) {
	addrs := h.addrs()
	at := ""
	if len(addrs) > 0 && !addrs[0].Addr.IsLinkLocalUnicast() {
		at = " " + addrs[0].Addr.String()
		if h.deskPort() != DefaultPort {
			at = " " + net.JoinHostPort(addrs[0].Addr.String(), strconv.Itoa(h.deskPort()))
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if why != "" {
		fmt.Fprintf(h.o.Out, "The code has changed: %s.\n", why)
	} else {
		fmt.Fprintf(h.o.Out, "Group %v, led by this host.\n", h.seats.saved.Group)
	}
	fmt.Fprintf(h.o.Out, "On each other host run:  ringmaster join%s --code %s\n", at, code)
}

// watch tells people who is there, when that changes.
func (h *Host) watch(ctx context.Context) {
	said := ""
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		if text := h.roster(); text != said {
			said = text
			h.mu.Lock()
			fmt.Fprintln(h.o.Out, text)
			h.mu.Unlock()
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// states are the words for people.
var states = map[cluster.RankState]string{cluster.Member: "runs", cluster.Forming: "starts", cluster.Joining: "waits to be taken in",
	cluster.Leaving: "leaves", cluster.Lost: "is away", cluster.Out: "stays out", cluster.Absent: "starts"}

// roster lists the hosts of the group and what they do.
func (h *Host) roster() string {
	name, _ := os.Hostname() // for people
	lines := []string{fmt.Sprintf("%s (this host, rank 0)", cmp.Or(name, "rank 0"))}
	ranks := h.o.Ranks()
	doing := map[int]string{}
	h.mu.Lock()
	for rank, g := range h.guests {
		doing[rank] = g.doing
	}
	h.mu.Unlock()
	for rank := 1; rank < groupplan.MaxRanks; rank++ {
		what := doing[rank]
		if what == "" && rank < len(ranks) && ranks[rank].State != cluster.Absent {
			what = states[ranks[rank].State]
			if why := ranks[rank].Why; why != "" && ranks[rank].State == cluster.Out {
				what += ": " + why
			}
		}
		if what != "" {
			lines = append(lines, fmt.Sprintf("%s (rank %d, %s)", cmp.Or(h.seats.name(rank), "host"), rank, what))
		}
	}
	return "Hosts: " + strings.Join(lines, ", ")
}

// present reports whether the host of a rank is connected.
func (h *Host) present(rank int) bool {
	h.mu.Lock()
	_, here := h.guests[rank]
	h.mu.Unlock()
	ranks := h.o.Ranks()
	return here || rank < len(ranks) && ranks[rank].State != cluster.Absent && ranks[rank].State != cluster.Lost
}
