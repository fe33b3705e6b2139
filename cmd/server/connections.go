package main

import (
	"fmt"

	"ringmaster/distributed/accept"
)

// filesBesides is how many files a server needs besides its clients' connections:
// for the model, the ranks, strangers on their ports, the reserve.
const filesBesides = 32

// connections are the two numbers of --max-connections, 0 for the default. It refuses a
// limit for which the process has too few files.
func (o *serveOptions) connections() (total, ofAddress int, err error) {
	switch len(o.conns) {
	case 0:
		return 0, 0, nil
	case 1:
		total = o.conns[0]
	case 2:
		total, ofAddress = o.conns[0], o.conns[1]
	default:
		return 0, 0, fmt.Errorf("--max-connections has %d numbers; expected that of all connections, and that of one address", len(o.conns))
	}
	if files := accept.FileLimit(); total > 0 && total > files-filesBesides {
		return 0, 0, fmt.Errorf("--max-connections is %d, and this process may open %d files, of which it needs %d for other things; raise ulimit -n to %d",
			total, files, filesBesides, total+filesBesides)
	}
	return total, ofAddress, nil
}
