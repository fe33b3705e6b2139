// Command ringmaster serves DeepSeek-style mixture-of-experts models from GGUF
// files over an OpenAI-compatible API.
package main

import (
	"context"
	"fmt"
	"os"

	"ringmaster/distributed/rdma/helper"
)

func main() {
	if helper.Wanted() {
		helper.Main()
	}
	if err := newRoot().ExecuteContext(stopOnSignal(context.Background())); err != nil {
		fmt.Fprintln(os.Stderr, "ringmaster:", err)
		os.Exit(exitCode(err))
	}
}
