package rails

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"

	"ringmaster/distributed/rdma/matrix"
	"ringmaster/internal/subprocess"
)

// macPrograms are the programs of a Mac that describe its devices.
// rdma_ctl and ibv_devices exist since macOS 26.2.
var macPrograms = [][]string{
	{"rdma_ctl", "status"},
	{"ibv_devices"},
	{"ibv_devinfo", "-v"},
	{"networksetup", "-listallhardwareports"},
	{"system_profiler", "SPThunderboltDataType", "-json"},
	{"ifconfig", "-a"},
}

// mac fills in the devices of a Mac.
func (p *probe) mac(ctx context.Context, r *Report) {
	output, failed := map[string]string{}, map[string]error{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, q := range macPrograms {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, p.limit)
			defer cancel()
			text, err := p.run(ctx, q[0], q[1:]...)
			if err != nil && ctx.Err() != nil {
				err = p.unanswered(q[0], err)
			}
			mu.Lock()
			defer mu.Unlock()
			output[q[0]] = text
			if err != nil {
				failed[q[0]] = err
			}
		})
	}
	wg.Wait()
	sockets, err := matrix.ParseThunderbolt([]byte(output["system_profiler"]))
	if err != nil && failed["system_profiler"] == nil {
		failed["system_profiler"] = err
	}
	interfaces := matrix.ParseIfconfig(output["ifconfig"])
	r.Host = matrix.MacHost(p.name, matrix.ParseIBVDevices(output["ibv_devices"]), matrix.ParseIBVDevinfo(output["ibv_devinfo"]),
		matrix.ParseHardwarePorts(output["networksetup"]), sockets, interfaces)
	r.macNotes(output, failed, interfaces)
	r.linkNotes(sockets)
}

// linkNotes notes which cables carry no RDMA.
func (r *Report) linkNotes(sockets []matrix.ThunderboltPort) {
	for _, s := range sockets {
		name := "Thunderbolt " + s.Receptacle
		if len(s.Far) > 0 && s.Speed == "40 Gb/s" {
			r.note("%s: its link to a Mac runs at 40 Gb/s, which carries no RDMA; both Macs and the cable must be Thunderbolt 5, with no dock between", name)
		}
		for _, model := range s.NoRDMA {
			r.note("%s: the Mac at its other end (%s) does not offer RDMA; start that one in Recovery, run rdma_ctl enable, and restart; it must have Thunderbolt 5 and macOS 26.2 or later", name, model)
		}
	}
}

// unanswered is the error of a program that has not answered in time: err, or that
// it has ended on SIGTERM.
func (p *probe) unanswered(program string, err error) error {
	late := fmt.Errorf("no answer within %v", p.limit)
	if !errors.Is(err, subprocess.ErrLeftBehind) {
		return late
	}
	late = fmt.Errorf("%w; %w", late, err)
	if strings.HasPrefix(program, "ibv_") {
		late = fmt.Errorf("%w: the driver hangs, after a process that held a device was killed or crashed; only a power cycle helps (shut the Mac down and start it again). Do not kill the program by force", late)
	}
	return late
}

// macNotes notes what prevents RDMA on a Mac, given the output and the errors of
// macPrograms.
func (r *Report) macNotes(output map[string]string, failed map[string]error, interfaces []matrix.Interface) {
	disabled := strings.Contains(strings.ToLower(output["rdma_ctl"]), "disabled")
	switch {
	case errors.Is(failed["ibv_devices"], exec.ErrNotFound):
		r.note("this Mac has no ibv_devices; RDMA over Thunderbolt needs macOS 26.2 or later and Thunderbolt 5")
		return
	case disabled:
		r.note("RDMA is disabled; start the Mac in Recovery, run rdma_ctl enable in its Terminal, and restart")
	case len(r.Devices) == 0 && failed["ibv_devices"] == nil:
		r.note("ibv_devices lists no device; start the Mac in Recovery, run rdma_ctl enable in its Terminal, and restart; its ports must be Thunderbolt 5")
	}
	for _, q := range macPrograms {
		if err := failed[q[0]]; err != nil && q[0] != "rdma_ctl" {
			r.note("%s: %v", strings.Join(q, " "), err)
		}
	}
	for _, bridge := range interfaces {
		for _, d := range r.Devices {
			if slices.Contains(bridge.Members, d.Interface) {
				r.note("%s: its interface %s is a member of %s; remove it from the bridge (System Settings, Network, Thunderbolt Bridge) or assign %s an IPv4 address of its own: RDMA cannot use the address of the bridge, and cables that form a ring make a bridge loop", d.Name, d.Interface, bridge.Name, d.Interface)
			}
		}
	}
}
