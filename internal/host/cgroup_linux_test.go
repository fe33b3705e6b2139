package host

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

// TestCgroup: the tightest limit of the process's own group and of its parents bounds
// memory and threads, in both versions and in a container.
func TestCgroup(t *testing.T) {
	const mib = 1 << 20
	host := Memory{Total: 1000 * mib, Available: 900 * mib}
	const v1 = "31 1 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n" +
		"32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n" +
		"35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
	const v2 = "31 1 0:28 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
	for name, c := range map[string]struct {
		files   map[string]string
		want    Memory
		threads int
	}{
		"none": {nil, host, 0},
		"v2, no limit": {map[string]string{
			"proc/self/mountinfo": v2, "proc/self/cgroup": "0::/a.slice/b.scope\n",
			"sys/fs/cgroup/a.slice/memory.max": "max\n", "sys/fs/cgroup/a.slice/cpu.max": "max 100000\n",
		}, host, 0},
		"v2, own group": {map[string]string{
			"proc/self/mountinfo": v2, "proc/self/cgroup": "0::/a.slice/b.scope\n",
			"sys/fs/cgroup/a.slice/b.scope/memory.max":     "104857600\n",
			"sys/fs/cgroup/a.slice/b.scope/memory.current": "52428800\n",
			"sys/fs/cgroup/a.slice/b.scope/memory.stat":    "anon 1\ninactive_file 10485760\n",
			"sys/fs/cgroup/a.slice/b.scope/cpu.max":        "150000 100000\n",
		}, Memory{100 * mib, 60 * mib}, 2},
		"v2, a parent is tighter": {map[string]string{
			"proc/self/mountinfo": v2, "proc/self/cgroup": "0::/a.slice/b.scope\n",
			"sys/fs/cgroup/a.slice/memory.max":         "104857600\n",
			"sys/fs/cgroup/a.slice/b.scope/memory.max": "209715200\n",
			"sys/fs/cgroup/a.slice/cpu.max":            "100000 100000\n",
			"sys/fs/cgroup/a.slice/b.scope/cpu.max":    "300000 100000\n",
		}, Memory{100 * mib, 100 * mib}, 1},
		"v2, a parent with a larger limit is fuller": {map[string]string{
			"proc/self/mountinfo": v2, "proc/self/cgroup": "0::/a.slice/b.scope\n",
			"sys/fs/cgroup/a.slice/memory.max":         "209715200\n",
			"sys/fs/cgroup/a.slice/memory.current":     "199229440\n",
			"sys/fs/cgroup/a.slice/b.scope/memory.max": "104857600\n",
		}, Memory{100 * mib, 10 * mib}, 0},
		"v1": {map[string]string{
			"proc/self/mountinfo": v1, "proc/self/cgroup": "4:memory:/a/b\n2:cpuacct,cpu:/a\n1:name=systemd:/\n",
			"sys/fs/cgroup/memory/a/b/memory.limit_in_bytes": "104857600\n",
			"sys/fs/cgroup/memory/a/b/memory.usage_in_bytes": "41943040\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes":     "9223372036854771712\n",
			"sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us":   "250000\n",
			"sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us":  "100000\n",
			"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us":     "-1\n",
			"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us":    "100000\n",
			"sys/fs/cgroup/memory/a/b/memory.stat":           "cache 1\ntotal_inactive_file 0\n",
			"sys/fs/cgroup/memory/a/memory.limit_in_bytes":   "18446744073709551615\n",
		}, Memory{100 * mib, 60 * mib}, 3},
		"v1, the host's path in a container": {map[string]string{
			"proc/self/mountinfo":                        "35 31 0:32 /docker/x /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
			"proc/self/cgroup":                           "4:memory:/docker/x\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "104857600\n",
			"sys/fs/cgroup/memory/memory.usage_in_bytes": "109051904\n",
		}, Memory{100 * mib, 0}, 0},
		"not readable": {map[string]string{
			"proc/self/mountinfo": v2 + "short\n", "proc/self/cgroup": "0::/../x\nbad\n",
			"sys/fs/cgroup/memory.max": "many\n", "sys/fs/cgroup/cpu.max": "\n",
		}, host, 0},
	} {
		t.Run(name, func(t *testing.T) {
			root := fstest.MapFS{}
			for path, text := range c.files {
				root[path] = &fstest.MapFile{Data: []byte(text)}
			}
			g := readCgroup(root)
			require.Equal(t, c.want, g.limit(host))
			require.Equal(t, c.threads, g.processors())
		})
	}
}
