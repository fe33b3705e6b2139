package host

import (
	"bufio"
	"errors"
	"io/fs"
	"math"
	"path/filepath"
	"strconv"
	"strings"
)

// cgroup is the control groups of a process: for each controller the directories of its
// group and of all visible parents, in fsys.
type cgroup struct {
	fsys   fs.FS // the root directory "/"
	memory []string
	cpu    []string
	v2     []string
}

// readCgroup finds the control groups of this process in fsys, the root
// directory. Without any, no limit is known.
func readCgroup(fsys fs.FS) cgroup {
	g := cgroup{fsys: fsys}
	type mount struct{ root, at string }
	mounts := map[string]mount{} // by controller; "" is version 2
	eachLine(fsys, "proc/self/mountinfo", func(line string) {
		// ID PARENT DEV ROOT POINT OPTIONS [TAGS] - TYPE SOURCE SUPER
		before, after, ok := strings.Cut(line, " - ")
		own, super := strings.Fields(before), strings.Fields(after)
		if !ok || len(own) < 5 || len(super) < 3 {
			return
		}
		m := mount{root: own[3], at: own[4]}
		switch super[0] {
		case "cgroup2":
			mounts[""] = m
		case "cgroup":
			for option := range strings.SplitSeq(super[2], ",") {
				mounts[option] = m
			}
		}
	})
	eachLine(fsys, "proc/self/cgroup", func(line string) { // ID:CONTROLLERS:PATH
		fields := strings.SplitN(line, ":", 3)
		if len(fields) < 3 {
			return
		}
		for controller := range strings.SplitSeq(fields[1], ",") {
			m, ok := mounts[controller]
			if !ok {
				continue
			}
			dirs := withParents(m.root, m.at, fields[2])
			switch controller {
			case "":
				g.v2 = dirs
			case "memory":
				g.memory = dirs
			case "cpu":
				g.cpu = dirs
			}
		}
	})
	return g
}

// withParents returns the directories of the group called path and of its parents; the
// group called root is mounted at a directory. In a container the path may be the host's
// while the mount shows only its end; then the mount itself is the group.
func withParents(root, at, path string) []string {
	at = strings.TrimPrefix(filepath.Clean(at), "/")
	rest, err := filepath.Rel(root, path)
	if err != nil || rest == ".." || strings.HasPrefix(rest, "../") {
		rest = "."
	}
	dirs := []string{filepath.Join(at, rest)}
	for ; rest != "."; rest = filepath.Dir(rest) {
		dirs = append(dirs, filepath.Join(at, filepath.Dir(rest)))
	}
	return dirs
}

// eachLine calls f with every line of a file, or never if it cannot be read.
func eachLine(fsys fs.FS, name string, f func(line string)) {
	file, err := fsys.Open(name)
	if err != nil {
		return
	}
	defer file.Close()
	for s := bufio.NewScanner(file); s.Scan(); {
		f(s.Text())
	}
}

// numbers returns the whitespace-separated numbers of the first line of a file; "max" is
// math.MaxInt64.
func (g *cgroup) numbers(name string) ([]int64, error) {
	text, err := fs.ReadFile(g.fsys, name)
	if err != nil {
		return nil, err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	var ns []int64
	for _, field := range strings.Fields(line) {
		n, err := strconv.ParseInt(field, 10, 64)
		if field == "max" || errors.Is(err, strconv.ErrRange) {
			n, err = math.MaxInt64, nil
		}
		if err != nil {
			return nil, err
		}
		ns = append(ns, n)
	}
	if len(ns) == 0 {
		return nil, errors.New("not a number")
	}
	return ns, nil
}

// limit lowers the memory of the host to what the memory limits of the groups leave. The
// page cache counts as free, as in MemAvailable, because the kernel reclaims it under
// pressure.
func (g *cgroup) limit(host Memory) Memory {
	m := host
	for _, of := range []struct {
		dirs            []string
		max, used, file string
	}{
		{g.memory, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"},
		{g.v2, "memory.max", "memory.current", "inactive_file"},
	} {
		for _, dir := range of.dirs {
			most, err := g.numbers(filepath.Join(dir, of.max))
			if err != nil || most[0] >= host.Total {
				continue // none, or more than the host has
			}
			m.Total = min(m.Total, most[0])
			free := most[0]
			if used, err := g.numbers(filepath.Join(dir, of.used)); err == nil {
				free -= used[0]
			}
			eachLine(g.fsys, filepath.Join(dir, "memory.stat"), func(line string) {
				key, value, _ := strings.Cut(line, " ")
				if n, err := strconv.ParseInt(value, 10, 64); err == nil && key == of.file {
					free += n
				}
			})
			m.Available = min(m.Available, max(free, 0))
		}
	}
	return m
}

// processors returns how many processors' time the quotas of the groups allow, rounded
// up; 0 is no limit.
func (g *cgroup) processors() int {
	least := math.Inf(1)
	lower := func(quota, period int64) {
		if quota > 0 && quota < math.MaxInt64 && period > 0 {
			least = min(least, float64(quota)/float64(period))
		}
	}
	for _, dir := range g.cpu {
		quota, err := g.numbers(filepath.Join(dir, "cpu.cfs_quota_us"))
		period, perr := g.numbers(filepath.Join(dir, "cpu.cfs_period_us"))
		if err == nil && perr == nil {
			lower(quota[0], period[0])
		}
	}
	for _, dir := range g.v2 {
		if both, err := g.numbers(filepath.Join(dir, "cpu.max")); err == nil && len(both) == 2 {
			lower(both[0], both[1])
		}
	}
	if math.IsInf(least, 1) {
		return 0
	}
	return int(math.Ceil(least))
}
