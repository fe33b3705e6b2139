package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"ringmaster/internal/subprocess"
)

// DefaultSSH asks no questions, so that a host that wants a password is a finding.
const DefaultSSH = "ssh -o BatchMode=yes -o ConnectTimeout=10"

// Options say what is examined and how other hosts are reached.
type Options struct {
	Model          string        // its file; empty: none
	Listen         []string      // addresses that a server or a coordinator will listen on
	Weights, Quick bool          // read the whole model; do not measure the memory
	SSH, Program   string        // command that reaches other hosts, and the program's path there
	Limit          time.Duration // for each host
}

// Check refuses options that cannot be examined.
func (o *Options) Check(hosts []string) error {
	for i, h := range hosts {
		if h == "" || h[0] == '-' {
			return fmt.Errorf("host %q: expected a name or an address that ssh reaches", h)
		}
		if slices.Contains(hosts[:i], h) {
			return fmt.Errorf("host %s is given twice", h)
		}
	}
	if len(hosts) > 0 && (len(strings.Fields(o.SSH)) == 0 || o.Program == "") {
		return fmt.Errorf("hosts need --ssh and --program, and no --facts")
	}
	if o.Weights && o.Model == "" {
		return fmt.Errorf("--check-weights needs --model")
	}
	return nil
}

// Facts returns those of this host.
func (o *Options) Facts(ctx context.Context) Facts {
	ask := Ask{Model: o.Model}
	for _, a := range o.Listen {
		ask.Ports = append(ask.Ports, Port{Address: a, Use: "--listen"})
	}
	return Gather(ctx, o.here(), ask)
}

// Report examines the hosts, or this one if the list is empty.
func (o *Options) Report(ctx context.Context, hosts []string) (*Report, error) {
	var report *Report
	if len(hosts) == 0 {
		report = Examine([]Facts{o.Facts(ctx)})
	} else {
		r := &Remote{Run: subprocess.Run, Command: strings.Fields(o.SSH), Program: o.Program, Args: o.remoteArgs(), Limit: o.Limit, Now: time.Now}
		all, failed := r.Gather(ctx, hosts)
		report = Examine(all)
		report.Findings = append(failed, report.Findings...)
	}
	return report, ctx.Err()
}

// remoteArgs returns the flags of doctor on another host.
func (o *Options) remoteArgs() []string {
	var args []string
	if o.Model != "" {
		args = append(args, "--model="+o.Model)
	}
	if o.Weights {
		args = append(args, "--check-weights")
	}
	if o.Quick {
		args = append(args, "--quick")
	}
	for _, a := range o.Listen {
		args = append(args, "--listen="+a)
	}
	return args
}
