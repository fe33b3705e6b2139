package main

import (
	"fmt"

	"ringmaster/distributed/accept"
)

// filesBesides is how many files a server needs besides its clients' connections:
// for the model, the ranks, strangers on their ports, the reserve.
const filesBesides = 32

// checkConnections refuses limits for which the process has not enough files.
func (o *serveOptions) checkConnections() error {
	if files := accept.FileLimit(); o.conns > 0 && o.conns > files-filesBesides {
		return fmt.Errorf("--max-connections is %d, and this process may open %d files, of which it needs %d for other things; raise ulimit -n to %d",
			o.conns, files, filesBesides, o.conns+filesBesides)
	}
	return nil
}
