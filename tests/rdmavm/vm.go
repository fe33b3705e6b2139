// Package rdmavm boots a disposable Linux guest with a kernel that has soft-RoCE devices:
// the real RDMA stack, with RC and UC queue pairs, completions, retries and flushes, on
// hosts without an RDMA card. README.md says how to run it by hand.
//
// The guest runs in QEMU without hardware virtualization, so that it works everywhere,
// some ten to twenty times slower than the host. Times measured in it are comparable only
// with each other.
package rdmavm

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"ringmaster/tests/rdmavm/job"
)

// bootLimit bounds the start of the guest, without the steps. It is minutes, although an
// idle host takes some 8 s, because hosts with processors overcommitted ten times took
// that long.
const bootLimit = 4 * time.Minute

// Run describes a run of a guest: what it is given, and its steps.
type Run struct {
	// Rails and Ports are the fabric: Rails switches, each with Ports
	// devices. Devices have the names job.Device(rail, port).
	Rails, Ports int
	// Programs are copied into the guest, with the libraries that they are
	// linked with: paths here by path in the guest.
	Programs map[string]string
	Steps    []job.Step
	// MemoryMB is the guest's memory, 1024 if 0.
	MemoryMB int
	// Log, if set, receives the output of the steps as it is produced.
	Log io.Writer
}

// Result is the result of a step.
type Result struct {
	Output []byte // stdout and stderr
	Exit   int    // -1 with Err if it was not run or was killed
	Err    string
	Took   time.Duration
}

// Times breaks down the time of a run.
type Times struct {
	Fetch time.Duration // finding or fetching packages, assembling the initramfs
	Boot  time.Duration // until the guest's first step
	Whole time.Duration
}

// Boot runs a guest to its end. Errors wrap ErrNotHere where no guest can be
// booted; all others include the end of the kernel's console output. Failed
// steps are not an error of Boot.
func Boot(ctx context.Context, r Run) ([]Result, Times, error) {
	start := time.Now()
	m, err := findMachine(ctx)
	if err != nil {
		return nil, Times{}, err
	}
	dir, err := os.MkdirTemp("", "rdmavm")
	if err != nil {
		return nil, Times{}, err
	}
	defer os.RemoveAll(dir)
	if err := m.build(ctx, filepath.Join(dir, "initramfs"), r); err != nil {
		return nil, Times{}, err
	}
	limit := bootLimit
	for _, s := range r.Steps {
		limit += s.Limit
	}
	times := Times{Fetch: time.Since(start)}
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	results, boot, err := m.qemu(bounded, dir, r)
	times.Boot, times.Whole = boot, time.Since(start)
	return results, times, err
}

// build writes the initramfs.
func (m *machine) build(ctx context.Context, at string, r Run) error {
	fs := &initramfs{files: map[string][]byte{}, tree: m.tree}
	j := job.Job{Rails: r.Rails, Ports: r.Ports, Steps: r.Steps}
	kos, err := filepath.Glob(filepath.Join(m.kernel(), "modules", "*.ko"))
	if err != nil || len(kos) == 0 {
		return errors.Join(err, fmt.Errorf("no modules in %s: remove it", m.kernel()))
	}
	for _, k := range kos { // in loading order: Glob sorts
		in := "/modules/" + filepath.Base(k)
		j.Modules = append(j.Modules, in)
		if err := fs.add(in, k); err != nil {
			return err
		}
	}
	for _, p := range parts {
		in := "/" + p.file
		if strings.Contains(p.file, "qemu") {
			continue
		}
		from, err := m.find(p.file)
		if err != nil {
			return err
		}
		if strings.Contains(p.file, "/libibverbs/") {
			in = "/usr/" + p.file // the path that is compiled into the library
		}
		if err := fs.add(in, from); err != nil {
			return err
		}
	}
	fs.files["etc/libibverbs.d/rxe.driver"] = []byte("driver rxe\n")
	for in, from := range r.Programs {
		if err := fs.add(in, from); err != nil {
			return err
		}
	}
	first := at + ".init"
	if err := Build(ctx, first, "build", "./tests/rdmavm/guest", "CGO_ENABLED=0"); err != nil {
		return err
	}
	if err := fs.add("/init", first); err != nil {
		return err
	}
	text, err := json.Marshal(j)
	if err != nil {
		return err
	}
	fs.files[strings.TrimPrefix(job.Path, "/")] = text
	f, err := os.Create(at)
	if err != nil {
		return err
	}
	return errors.Join(fs.write(f), f.Close())
}

// qemu runs the guest and reads its results.
func (m *machine) qemu(ctx context.Context, dir string, r Run) (results []Result, boot time.Duration, err error) {
	program, err := m.find("bin/qemu-system-x86_64")
	if err != nil {
		return nil, 0, err
	}
	memory := cmp.Or(r.MemoryMB, 1024)
	console := filepath.Join(dir, "console")
	args := []string{
		"-accel", "tcg", "-cpu", "max,la57=off", "-smp", "2", "-m", fmt.Sprint(memory),
		"-nodefaults", "-display", "none", "-no-reboot",
		"-kernel", filepath.Join(m.kernel(), "vmlinuz"), "-initrd", filepath.Join(dir, "initramfs"),
		"-append", "console=ttyS0 quiet nokaslr panic=-1 mitigations=off rcupdate.rcu_expedited=1",
		"-serial", "file:" + console, "-serial", "stdio",
	}
	fetched := m.tree != "" && strings.HasPrefix(program, m.tree)
	if fetched {
		for _, d := range []string{"qemu", "seabios"} {
			args = append(args, "-L", filepath.Join(m.tree, "usr/share", d))
		}
	}
	cmd := exec.CommandContext(ctx, program, args...)
	if fetched {
		cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+filepath.Join(m.tree, libraryDirs[1])+":"+filepath.Join(m.tree, libraryDirs[0]))
	}
	cmd.WaitDelay = 5 * time.Second
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return nil, 0, err
	}
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, 0, err
	}
	results = make([]Result, len(r.Steps))
	ended, ready := 0, false
	var readErr error
	for in := json.NewDecoder(pipe); readErr == nil; {
		var l job.Line
		if readErr = in.Decode(&l); readErr != nil {
			break
		}
		switch {
		case l.Step < 0:
			boot, ready = time.Since(start), true
			if l.Error != "" {
				readErr = fmt.Errorf("setting the guest up: %s", l.Error)
			}
		case l.Step >= len(results):
			readErr = fmt.Errorf("the guest speaks of step %d", l.Step)
		case l.Ended:
			res := &results[l.Step]
			res.Exit, res.Err, res.Took = l.Exit, l.Error, l.Took
			ended++
		default:
			results[l.Step].Output = append(results[l.Step].Output, l.Output...)
			if r.Log != nil {
				if _, err := r.Log.Write(l.Output); err != nil {
					readErr = err
				}
			}
		}
	}
	if errors.Is(readErr, io.EOF) {
		readErr = nil
	} else {
		_ = cmd.Process.Kill() // it may have exited already; readErr is what matters
	}
	err = errors.Join(readErr, cmd.Wait())
	if ctx.Err() != nil {
		err = fmt.Errorf("the guest did not end in time: %w", context.Cause(ctx))
	}
	if err == nil && (!ready || ended < len(results)) {
		err = fmt.Errorf("the guest ended after %d of %d steps", ended, len(results))
	}
	if err != nil {
		last, _ := os.ReadFile(console) // if it is missing, the error says so
		err = fmt.Errorf("%w\nqemu: %s\nconsole: %s", err, complaint.Bytes(), tail(last, 4000))
	}
	return results, boot, err
}

func tail(b []byte, n int) []byte { return b[max(0, len(b)-n):] }
