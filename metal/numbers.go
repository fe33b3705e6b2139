package metal

import (
	"time"

	"ringmaster/kernels/gpu"
)

// Rates of the slowest supported GPU, that of the M1 with 8 cores: 2.6 TFLOPS (Apple,
// "Apple unleashes M1", November 2020), and two thirds of the 100 GB/s of the M2, which
// has "50 percent more than M1" (Apple, "Apple unveils M2", June 2022). Kernels that
// decode weights, and the M1 with 7 cores, are slower: a tenth of the first and a
// quarter of the second are assumed.
const (
	slowFlops = 2.6e12 / 10
	slowBytes = 67e9 / 4
)

// mostWork bounds the estimate of a command buffer. A GPU's watchdog ends one after
// about 5 s without progress (github.com/ml-explore/mlx/issues/4475); where a display is
// attached, macOS also ends one that keeps it waiting, after less
// (github.com/ml-explore/mlx/issues/3267). A twentieth of the first leaves room for both, and
// for other programs. A commit costs some ten microseconds.
const mostWork = 250 * time.Millisecond

// How work is divided: some dozens of simdgroups for each of a device's 8 to 80 cores hide
// the latency of loads.
const (
	busy         = 2048
	attendGroups = 128
)

// Numbers are those of every Mac: how work is divided. They are known where there is no Mac.
func Numbers() gpu.Info {
	return gpu.Info{
		RowsAgree: false, // GEMM sums in another order than GEMV
		Busy:      busy, AttendGroups: attendGroups, Flops: slowFlops, Bytes: slowBytes, MostWork: mostWork,
	}
}
