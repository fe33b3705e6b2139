// Command install DIR puts the packages of DIR/package-lock.json into DIR/node_modules,
// unless they exist: npm.Install for scripts.
package main

import (
	"context"
	"fmt"
	"os"

	"ringmaster/tests/npm"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: install DIR")
		os.Exit(2)
	}
	if err := npm.Install(context.Background(), os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
