// Command ringmaster serves DeepSeek-style mixture-of-experts models from GGUF
// files over an OpenAI-compatible API.
package main

import (
	"context"
	"os"

	"ringmaster/distributed/rdma/helper"
)

func main() {
	if helper.Wanted() {
		helper.Main()
	}
	root := newRoot()
	if err := root.ExecuteContext(stopOnSignal(context.Background())); err != nil {
		printError(root.ErrOrStderr(), err)
		os.Exit(exitCode(err))
	}
}
