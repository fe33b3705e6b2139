package bench

import (
	"context"
	"regexp"
	"runtime"
	"strconv"
	"time"

	"ringmaster/internal/subprocess"
)

// coresLimit bounds how long the program that knows the number of a GPU's cores may take.
const coresLimit = 5 * time.Second

var coreCount = regexp.MustCompile(`"gpu-core-count" = (\d+)`)

// gpuCores is the number of cores of a Mac's GPU, which Metal does not tell, 0 if it is not
// known. Chips of one name are sold with several numbers.
func gpuCores(ctx context.Context) int {
	if runtime.GOOS != "darwin" {
		return 0
	}
	ctx, cancel := context.WithTimeout(ctx, coresLimit)
	defer cancel()
	text, err := subprocess.Run(ctx, "ioreg", "-rc", "AGXAccelerator", "-d", "1")
	if err != nil {
		return 0
	}
	return coresIn(text)
}

// coresIn reads what ioreg prints of the accelerator.
func coresIn(text string) int {
	found := coreCount.FindStringSubmatch(text)
	if found == nil {
		return 0
	}
	n, err := strconv.Atoi(found[1])
	if err != nil {
		return 0
	}
	return n
}
