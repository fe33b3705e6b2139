//go:build linux

// Command guest is the first process of the guest: it mounts the kernel's file
// systems, loads modules, builds the fabric of the job, runs its steps and turns
// the machine off.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"ringmaster/tests/rdmavm/job"
)

func main() {
	start := time.Now()
	g := &guest{}
	if err := g.prepare(); err != nil {
		g.say(job.Line{Step: -1, Ended: true, Exit: -1, Error: err.Error(), Took: time.Since(start)})
	} else {
		g.say(job.Line{Step: -1, Ended: true, Took: time.Since(start)})
		for i, s := range g.job.Steps {
			g.run(i, s)
		}
	}
	if g.results != nil {
		// Off means off, because the port would otherwise lose what it has not sent yet.
		_ = drain(g.results)
	}
	if err := syscall.Reboot(syscall.LINUX_REBOOT_CMD_POWER_OFF); err != nil {
		fmt.Fprintln(os.Stderr, "power off:", err)
	}
	select {} // the first process must not end
}

type guest struct {
	job job.Job

	mu      sync.Mutex
	results *os.File
}

// say writes a line of the results.
func (g *guest) say(l job.Line) {
	text, err := json.Marshal(l)
	if err != nil {
		text = []byte(fmt.Sprintf(`{"Step":-1,"Ended":true,"Exit":-1,"Error":%q}`, err))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.results == nil {
		fmt.Fprintf(os.Stderr, "%s\n", text)
		return
	}
	if _, err := g.results.Write(append(text, '\n')); err != nil {
		fmt.Fprintln(os.Stderr, "results:", err)
	}
}

// prepare sets the guest up for the steps.
func (g *guest) prepare() error {
	for _, m := range []struct{ kind, at string }{
		{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}, {"tmpfs", "/tmp"}, {"tmpfs", "/dev/shm"}, {"tmpfs", "/run"},
	} {
		if err := os.MkdirAll(m.at, 0o755); err != nil {
			return err
		}
		if err := syscall.Mount(m.kind, m.at, m.kind, 0, ""); err != nil {
			return fmt.Errorf("mounting %s: %w", m.at, err)
		}
	}
	var err error
	if g.results, err = os.OpenFile("/dev/ttyS1", os.O_WRONLY|syscall.O_NOCTTY, 0); err != nil {
		return err
	}
	text, err := os.ReadFile(job.Path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, &g.job); err != nil {
		return err
	}
	// Registered memory is locked memory.
	const unlimited = ^uint64(0)
	const memlock = 8 // RLIMIT_MEMLOCK
	if err := syscall.Setrlimit(memlock, &syscall.Rlimit{Cur: unlimited, Max: unlimited}); err != nil {
		return fmt.Errorf("limit of locked memory: %w", err)
	}
	for _, m := range g.job.Modules {
		if err := load(m); err != nil {
			return fmt.Errorf("module %s: %w", m, err)
		}
	}
	listen()
	return g.fabric()
}

// listen makes the kernel log why soft-RoCE gave up on a request. The
// completion says LOC_QP_OP_ERR for several causes alike, and the driver logs
// which one it was only at debug level. A kernel built without dynamic debug
// logs less.
func listen() {
	for _, why := range []string{"Host not reachable", "no route to", "during finish packet", "error sending packet", "moved to error state"} {
		_ = os.WriteFile("/proc/dynamic_debug/control", []byte(`module rdma_rxe format "`+why+`" +p`), 0)
	}
}

// kernelSays returns the end of the kernel's log and the state of the memory,
// as context for the output of a failed step.
func kernelSays() []byte {
	const readAll, most = 3, 4000 // SYSLOG_ACTION_READ_ALL
	log := make([]byte, 1<<18)
	n, err := syscall.Klogctl(readAll, log)
	if err != nil {
		log = fmt.Appendf(nil, "no kernel log: %v", err)
		n = len(log)
	}
	memory, _ := os.ReadFile("/proc/meminfo") // if it is missing, the output says so
	if end := bytes.Index(memory, []byte("Buffers:")); end > 0 {
		memory = memory[:end]
	}
	return fmt.Appendf(nil, "--- the kernel of the guest:\n%s\n%s---\n", log[max(0, n-most):n], memory)
}

// load loads a module into the kernel. It is no error if the module is already
// loaded or is for another processor.
func load(path string) error {
	image, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	params := []byte{0}
	_, _, errno := syscall.Syscall(syscall.SYS_INIT_MODULE, uintptr(unsafe.Pointer(&image[0])), uintptr(len(image)), uintptr(unsafe.Pointer(&params[0])))
	if errno != 0 && errno != syscall.EEXIST && errno != syscall.ENODEV {
		return errno
	}
	return nil
}

// fabric builds the rails: a bridge each, and a pair of virtual Ethernet
// interfaces for each port, one end in the bridge, the other below a soft-RoCE
// device.
//
// All addresses belong to one host, and packets between them would be delivered
// locally, past the devices. So packets that leave through a port's interface
// are routed first by a table of its own, which knows the other ports, and
// packets from this host's addresses are accepted from outside.
func (g *guest) fabric() error {
	commands := []string{
		"ip link set lo up",
		"ip rule add pref 20 lookup local",
		"ip rule del pref 0",
	}
	table := 100
	for r := range g.job.Rails {
		bridge := fmt.Sprintf("rail%d", r)
		commands = append(commands, "ip link add "+bridge+" type bridge", "ip link set "+bridge+" up")
		for p := range g.job.Ports {
			eth, inner := job.Interface(r, p), fmt.Sprintf("port%d%d", r, p)
			commands = append(commands,
				"ip link add "+eth+" mtu 4200 type veth peer name "+inner+" mtu 4200",
				"ip link set "+inner+" master "+bridge+" up",
				"ip addr add "+job.Address(r, p)+"/24 dev "+eth,
				"ip link set "+eth+" up")
		}
		for p := range g.job.Ports {
			table++
			eth := job.Interface(r, p)
			commands = append(commands,
				fmt.Sprintf("ip rule add pref 10 oif %s lookup %d", eth, table),
				"write 1 /proc/sys/net/ipv4/conf/"+eth+"/accept_local",
				"write 0 /proc/sys/net/ipv4/conf/"+eth+"/rp_filter",
				"write 1 /proc/sys/net/ipv4/conf/"+eth+"/arp_ignore")
			for q := range g.job.Ports {
				if q != p {
					commands = append(commands, fmt.Sprintf("ip route add %s/32 dev %s src %s table %d", job.Address(r, q), eth, job.Address(r, p), table))
				}
			}
			commands = append(commands, "rdma link add "+job.Device(r, p)+" type rxe netdev "+eth)
		}
	}
	for _, c := range commands {
		words := strings.Fields(c)
		if words[0] == "write" {
			if err := os.WriteFile(words[2], []byte(words[1]), 0); err != nil {
				return err
			}
			continue
		}
		out, err := exec.Command("/bin/"+words[0], words[1:]...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s: %w: %s", c, err, out)
		}
	}
	return nil
}

// run runs one step and reports its output and exit status.
func (g *guest) run(i int, s job.Step) {
	start := time.Now()
	end := job.Line{Step: i, Ended: true, Exit: -1}
	defer func() {
		end.Took = time.Since(start)
		g.say(end)
	}()
	cmd := exec.Command(s.Args[0], s.Args[1:]...)
	cmd.Env = append([]string{
		"PATH=/bin", "HOME=/tmp", "TMPDIR=/tmp",
		job.RailsVariable + "=" + strconv.Itoa(g.job.Rails), job.PortsVariable + "=" + strconv.Itoa(g.job.Ports),
	}, s.Env...)
	cmd.Dir = "/tmp"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that its children are killed with it
	out := &output{guest: g, step: i}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		end.Error = err.Error()
		return
	}
	limit := time.AfterFunc(s.Limit, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	err := cmd.Wait()
	if !limit.Stop() {
		end.Error = fmt.Sprintf("killed at its limit of %v", s.Limit)
		return
	}
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	if end.Exit = cmd.ProcessState.ExitCode(); end.Exit < 0 && err != nil {
		end.Error = err.Error()
	}
	if end.Exit != 0 {
		_, _ = out.Write(kernelSays()) // Write never fails
	}
}

// output sends the output of a step.
type output struct {
	guest *guest
	step  int
}

func (o *output) Write(b []byte) (int, error) {
	o.guest.say(job.Line{Step: o.step, Output: b})
	return len(b), nil
}

// drain waits until the port has sent everything (tcdrain).
func drain(f *os.File) error {
	const tcsbrk = 0x5409
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), tcsbrk, 1); errno != 0 {
		return errno
	}
	return nil
}
