//go:build cgo && linux

package fakeverbs

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkStatusCheck measures the exchanges of a 16 KiB all_sum of four ranks
// with the status check compiled in and out, alternately in one run.
func BenchmarkStatusCheck(b *testing.B) {
	c, all, err := sources()
	require.NoError(b, err)
	lib, dir := filepath.Dir(all[0]), b.TempDir()
	data := func(name string) string { return filepath.Join(lib, "testdata", name) }
	cc := func(args ...string) {
		msg, err := exec.Command("cc", append([]string{"-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Werror"}, args...)...).CombinedOutput()
		require.NoError(b, err, "%s", msg)
	}
	in, out, program := filepath.Join(dir, "in.o"), filepath.Join(dir, "out.o"), filepath.Join(dir, "cost")
	cc("-DLOOP=checked", "-c", data("check_loop.c"), "-o", in)
	cc("-DLOOP=unchecked", "-DRM_VERBS_UNCHECKED", "-c", data("check_loop.c"), "-o", out)
	args := append([]string{"-rdynamic", "-pthread", data("check_cost.c"), in, out, filepath.Join(lib, "../../../distributed/rdma/verbs/rm_lib.c")}, c...)
	cc(append(args, "-ldl", "-o", program)...)
	var with, without, fast, fastWithout float64
	for b.Loop() {
		msg, err := exec.Command(program).CombinedOutput()
		require.NoError(b, err, "%s", msg)
		_, err = fmt.Sscan(string(msg), &with, &without, &fast, &fastWithout)
		require.NoError(b, err)
	}
	b.ReportMetric(with, "ns/exchange")
	b.ReportMetric(without, "ns/unchecked")
	b.ReportMetric(100*(with/without-1), "%median")
	b.ReportMetric(100*(fast/fastWithout-1), "%tenth")
	b.ReportMetric(0, "ns/op")
}
