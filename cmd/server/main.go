// Command ringmaster serves DeepSeek-style mixture-of-experts models from GGUF
// files over an OpenAI-compatible API.
package main

import (
	"context"
	"os"

	"ringmaster/distributed/rdma/helper"
	"ringmaster/internal/cli"
)

func main() {
	if helper.Wanted() {
		helper.Main()
	}
	root := newRoot()
	root.SetArgs(cli.Expand(os.Args[1:]))
	if err := root.ExecuteContext(stopOnSignal(context.Background())); err != nil {
		printError(root.ErrOrStderr(), err)
		os.Exit(exitCode(err))
	}
}
