package rdmavm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"

	"ringmaster/tests/filelock"
)

// ErrNotHere says why no guest can be booted on this host: the emulator, the
// kernel or a tool of the guest is not installed and cannot be fetched.
var ErrNotHere = errors.New("no RDMA guest on this machine")

// fetchLimit bounds the download of all packages.
const fetchLimit = 4 * time.Minute

// libraryDirs are the library folders of Debian and of other systems.
var libraryDirs = []string{"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib"}

// machine is what booting needs from this host: its own files, and those of
// packages that were unpacked into the cache because they were missing. Nothing
// is ever installed and root is not needed.
type machine struct {
	cache string // shared by processes: entries appear complete and never change
	tree  string // where packages were unpacked, "" if this host has all parts
}

// parts are the programs and libraries, and the Debian packages that contain
// them.
var parts = []struct{ file, pkg string }{
	{"bin/qemu-system-x86_64", "qemu-system-x86"},
	{"bin/ip", "iproute2"},
	{"bin/rdma", "iproute2"},
	{"bin/ibv_devinfo", "ibverbs-utils"},
	{"bin/ibv_rc_pingpong", "ibverbs-utils"},
	{"bin/ibv_uc_pingpong", "ibverbs-utils"},
	{"lib/x86_64-linux-gnu/libibverbs.so.1", "libibverbs1"},
	{"lib/x86_64-linux-gnu/libibverbs/librxe-rdmav34.so", "ibverbs-providers"},
}

// findMachine finds all parts and the kernel; missing ones are fetched from
// Debian. Errors wrap ErrNotHere.
func findMachine(ctx context.Context) (*machine, error) {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		return nil, fmt.Errorf("%w: the guest runs programs of this machine, and is a Linux machine of x86-64", ErrNotHere)
	}
	base, err := os.UserCacheDir()
	if err != nil {
		return nil, fmt.Errorf("%w: no place for packages: %w", ErrNotHere, err)
	}
	m := &machine{cache: filepath.Join(base, "ringmaster", "rdmavm")}
	if err := os.MkdirAll(m.cache, 0o755); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotHere, err)
	}
	ctx, cancel := context.WithTimeout(ctx, fetchLimit)
	defer cancel()
	if err := m.fetchParts(ctx); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotHere, err)
	}
	if err := m.fetchKernel(ctx); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotHere, err)
	}
	return m, nil
}

// find returns the path of a part: bin/NAME or lib/….
func (m *machine) find(part string) (string, error) {
	dirs := []string{"/usr", "/"}
	if m.tree != "" {
		dirs = append(dirs, filepath.Join(m.tree, "usr"), m.tree)
	}
	for _, d := range dirs {
		at := filepath.Join(d, part)
		if isFile(at) {
			return at, nil
		}
		if name, program := strings.CutPrefix(part, "bin/"); program && isFile(filepath.Join(d, "sbin", name)) {
			return filepath.Join(d, "sbin", name), nil
		}
	}
	return "", fmt.Errorf("no %s here", part)
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// fetchParts unpacks the packages of missing parts, with all dependencies that
// this host lacks, into a folder named after them.
func (m *machine) fetchParts(ctx context.Context) error {
	var missing []string
	seen := map[string]bool{}
	for _, p := range parts {
		if _, err := m.find(p.file); err != nil && !seen[p.pkg] {
			seen[p.pkg] = true
			missing = append(missing, p.pkg)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	name := sha256.Sum256([]byte(strings.Join(missing, " ")))
	m.tree = filepath.Join(m.cache, "tree-"+hex.EncodeToString(name[:6]))
	return m.into(ctx, m.tree, func(dir string) error {
		// A simulated installation lists the dependencies.
		args := append([]string{"--simulate", "--no-install-recommends", "install"}, missing...)
		out, err := apt(ctx, "", "apt-get", args...)
		if err != nil {
			return err
		}
		var packages []string
		for _, l := range regexp.MustCompile(`(?m)^Inst (\S+) `).FindAllStringSubmatch(out, -1) {
			packages = append(packages, l[1])
		}
		debs, err := download(ctx, dir, packages...)
		if err != nil {
			return err
		}
		for _, d := range debs {
			if out, err := exec.CommandContext(ctx, "dpkg-deb", "--extract", d, filepath.Join(dir, "tree")).CombinedOutput(); err != nil {
				return fmt.Errorf("unpacking %s: %w: %s", filepath.Base(d), err, out)
			}
		}
		return nil
	})
}

// into creates the folder at, unless it exists, with a function that fills the
// subfolder tree of a private folder; at appears complete or not at all. Of the
// processes that need it at the same time one creates it and the others wait,
// because apt has locks of its own and fails while another apt runs.
func (m *machine) into(ctx context.Context, at string, fill func(dir string) error) error {
	release, err := filelock.Lock(ctx, filepath.Join(m.cache, "lock"))
	if err != nil {
		return err
	}
	defer release()
	if _, err := os.Stat(at); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	dir, err := os.MkdirTemp(m.cache, "new-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := fill(dir); err != nil {
		return err
	}
	return os.Rename(filepath.Join(dir, "tree"), at)
}

// download fetches packages into dir and returns the files.
func download(ctx context.Context, dir string, packages ...string) ([]string, error) {
	if _, err := apt(ctx, dir, "apt-get", append([]string{"download"}, packages...)...); err != nil {
		return nil, err
	}
	debs, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err == nil && len(debs) < len(packages) {
		err = fmt.Errorf("apt-get download brought %d of %d packages", len(debs), len(packages))
	}
	return debs, err
}

// apt runs a command of apt, and if it fails once more with fresh package
// lists: those of a new container are empty, those of an old one name files
// that no longer exist.
func apt(ctx context.Context, dir, name string, args ...string) (string, error) {
	run := func(name string, args ...string) (string, error) {
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "LC_ALL=C")
		out, err := cmd.Output()
		if err != nil {
			var exit *exec.ExitError
			if errors.As(err, &exit) {
				err = fmt.Errorf("%w: %s", err, exit.Stderr)
			}
			err = fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
		}
		return string(out), err
	}
	out, err := run(name, args...)
	if err == nil || errors.Is(err, exec.ErrNotFound) {
		return out, err
	}
	if _, e := run("apt-get", "--quiet=2", "update"); e != nil {
		return "", errors.Join(err, e)
	}
	return run(name, args...)
}
