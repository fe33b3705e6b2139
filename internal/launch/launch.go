// Package launch starts the ranks of a group, on hosts over ssh or all on this host, shows
// what they log, restarts those that die, and ends all of them.
//
//	err := (&launch.Options{Hosts: []string{"a", "b"}, Model: "/models/F.gguf", ...}).Run(ctx)
package launch

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"ringmaster/distributed"
	"ringmaster/internal/safetext"
	"ringmaster/internal/usage"
)

// Options say which ranks are started, and how.
type Options struct {
	Hosts []string // that ssh reaches, by rank
	Local int      // ranks on this host, in place of Hosts

	Model       string // its file, under the same path on every host; empty: the built-in model
	Program     string // on every host
	Key         string // file of the cluster's key, under the same path on every host
	Listen      string // where rank 0 serves; empty: its default
	Coordinator string // address of rank 0; empty: chosen
	Port        int    // of the coordinator
	User        string // for ssh; empty: its default
	SSH         []string
	Transport   string // between the ranks; empty: their default
	Switched    bool   // with rdma: all ports are on one switched network

	Restart bool          // a rank that dies is restarted
	Stable  time.Duration // a rank that has run for so long is restarted after a second
	Flags   []string      // of every rank

	MostRanks int
	Lookup    func(string) (string, bool) // of environment variables
	Logs      io.Writer                   // of the ranks
	Says      io.Writer                   // what this program says
}

// speaker begins the lines of this program among those of the ranks.
const speaker = "launch"

// DefaultPort is the port of the coordinator.
const DefaultPort = 32323

// group is one launch.
type group struct {
	*Options
	size        int
	coordinator string // HOST:PORT
	matrix      deviceMatrix

	printing sync.Mutex // lines of the ranks and of this program
}

// check refuses options with which no group can be started.
func (o *Options) check() error {
	switch {
	case o.Local > 0 && len(o.Hosts) > 0:
		return fmt.Errorf("--local starts all ranks on this host; do not name hosts")
	case o.Local == 0 && len(o.Hosts) == 0:
		return fmt.Errorf("name the hosts by rank, or give --local and the number of ranks on this host")
	case len(o.Hosts) > o.MostRanks:
		return fmt.Errorf("%d hosts; at most %d ranks form a group", len(o.Hosts), o.MostRanks)
	case o.Switched && o.Transport != rdma:
		return fmt.Errorf("--switched requires --transport rdma")
	case hasPort(o.Coordinator):
		return fmt.Errorf("--coordinator is %q; expected an address without a port, which --coordinator-port gives", o.Coordinator)
	case o.Transport == rdma && len(o.Hosts) == 1:
		return fmt.Errorf("--transport rdma needs two hosts or more")
	}
	if library, _ := o.Lookup("RINGMASTER_VERBS_LIBRARY"); o.Transport == rdma && o.Local > 0 && library == "" {
		return fmt.Errorf("--transport rdma does not work with --local: no cable connects this host to itself; name hosts, or use --transport tcp (for tests, RINGMASTER_VERBS_LIBRARY can replace the system's verbs library, with its device matrix in JACCL_IBV_DEVICES)")
	}
	// ssh would take a name that begins with a dash as an option.
	for _, x := range []struct{ what, name string }{{"--user", o.User}, {"--binary", o.Program}, {"--model", o.Model}, {"--key-file", o.Key}, {"--coordinator", o.Coordinator}} {
		if strings.HasPrefix(x.name, "-") {
			return fmt.Errorf("%s needs a value, and %s is an option", x.what, x.name)
		}
	}
	for _, name := range append([]string{o.User}, o.Hosts...) {
		if strings.HasPrefix(name, "-") || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return fmt.Errorf("%q: a host or a user begins with a dash, or has a space, a control character or no ASCII in its name", name)
		}
	}
	return nil
}

// hasPort reports whether an address is HOST:PORT.
func hasPort(address string) bool {
	_, _, err := net.SplitHostPort(address)
	return err == nil
}

// Run checks the hosts, starts the ranks and waits until all have ended. When ctx ends, and
// at the signals that end a program, it ends the ranks. It returns a RanksError if a rank
// failed.
func (o *Options) Run(ctx context.Context) error {
	g, err := o.prepare(ctx)
	if err != nil {
		return err
	}
	if err := g.putMatrix(ctx); err != nil {
		return err
	}
	return g.run(ctx)
}

// Check checks the hosts, and prints the commands that Run would run.
func (o *Options) Check(ctx context.Context) error {
	g, err := o.prepare(ctx)
	if err != nil {
		return err
	}
	for r := range g.size {
		g.print(g.Logs, fmt.Sprintf("%s: %s", g.name(r), quote(g.arguments(r))))
	}
	if g.matrix.text != nil {
		for line := range strings.Lines(string(g.matrix.text)) {
			g.print(g.Logs, line)
		}
	}
	return nil
}

// prepare checks the options and the hosts, and finds out how they reach rank 0.
func (o *Options) prepare(ctx context.Context) (*group, error) {
	if err := o.check(); err != nil {
		return nil, usage.Wrap(err)
	}
	g := &group{Options: o, size: max(o.Local, len(o.Hosts))}
	address := o.Coordinator
	if o.Local > 0 {
		if address == "" {
			address = "127.0.0.1"
		}
		own := []string{"--threads", strconv.Itoa(max(1, runtime.NumCPU()/g.size))}
		o.Flags = append(own, o.Flags...)
	} else {
		facts, err := g.probe(ctx)
		if err != nil {
			return nil, err
		}
		if address == "" {
			if address, err = g.chooseCoordinator(facts); err != nil {
				return nil, err
			}
		}
		if o.Transport == rdma {
			if err := g.findRails(ctx); err != nil {
				return nil, err
			}
		}
	}
	g.coordinator = net.JoinHostPort(strings.Trim(address, "[]"), strconv.Itoa(o.Port))
	return g, nil
}

// name names a rank for people.
func (g *group) name(rank int) string {
	if len(g.Hosts) == 0 {
		return distributed.RankName(rank, "")
	}
	return distributed.RankName(rank, g.Hosts[rank])
}

// say tells a person what happens.
func (g *group) say(format string, args ...any) {
	g.print(g.Says, speaker+": "+fmt.Sprintf(format, args...))
}

// print writes a line without what a terminal could obey.
func (g *group) print(w io.Writer, line string) {
	line = strings.TrimRight(strings.ReplaceAll(safetext.Drop(strings.ReplaceAll(line, "\r", "")), "\t", " "), "\n")
	g.printing.Lock()
	defer g.printing.Unlock()
	_, _ = fmt.Fprintln(w, line) // whoever closed it does not want to see it
}

// arguments returns the command line of a rank.
func (g *group) arguments(rank int) []string {
	args := []string{g.Program, "serve", "--distributed", "--rank", strconv.Itoa(rank), "--world-size", strconv.Itoa(g.size), "--coordinator", g.coordinator}
	add := func(flag, value string) {
		if value != "" {
			args = append(args, flag, value)
		}
	}
	add("--model", g.Model)
	add("--cluster-key-file", g.Key)
	if rank == 0 {
		add("--listen", g.Listen)
	}
	add("--transport", g.Transport)
	if g.matrix.text != nil {
		args = append(g.matrix.environment(rank), args...)
	}
	args = append(args, g.Flags...)
	// Rank 0 comes back, so the others keep the model and wait. A --connect-timeout of the
	// user is for rank 0, which waits for its ranks by it.
	if g.Restart && rank > 0 {
		args = append(args, "--connect-timeout", "24h")
	}
	return args
}

// quote quotes words for a shell.
func quote(words []string) string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
	}
	return strings.Join(out, " ")
}

// DefaultSSH is the command that reaches other hosts; the variable SSH replaces it.
func DefaultSSH(lookup func(string) (string, bool)) []string {
	if words, _ := lookup("SSH"); len(strings.Fields(words)) > 0 {
		return strings.Fields(words)
	}
	return []string{"ssh"}
}

// Here is the path of this program, which --local starts.
func Here() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("the path of this program is not known: %w; give it with --binary", err)
	}
	return path, nil
}
