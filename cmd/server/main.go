// Command ringmaster serves DeepSeek-style mixture-of-experts models from GGUF
// files over the OpenAI API.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := newRoot().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "ringmaster:", err)
		os.Exit(1)
	}
}
