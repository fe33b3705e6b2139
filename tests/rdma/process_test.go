//go:build cgo && (linux || darwin)

package rdma

import (
	"fmt"
	"os"
	"runtime"
	"testing"

	"ringmaster/distributed"
	"ringmaster/distributed/rdma"
	"ringmaster/distributed/rdma/helper"
)

// TestMain runs a helper process of verbs in place of the tests if this binary was
// started as one.
func TestMain(m *testing.M) {
	if helper.Wanted() {
		helper.Main()
	}
	if zero := os.Getenv(benchVariable); zero != "" {
		if err := benchPeer(zero); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// processes prepares a test that makes its verbs calls in helper processes: processes
// share the fabric.
func processes(t testing.TB) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("NOT CHECKED: the fabric that processes share copies with process_vm_readv")
	}
	t.Setenv("FAKEVERBS_DIR", t.TempDir())
}

// helped makes a rank's calls in helper processes, in addition to the test's other
// changes.
func helped(change func(r int, o *rdma.Options, l *distributed.Link)) func(r int, o *rdma.Options, l *distributed.Link) {
	return func(r int, o *rdma.Options, l *distributed.Link) {
		if change != nil {
			change(r, o, l)
		}
		o.Verbs = rdma.Helper
	}
}
