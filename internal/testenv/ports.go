package testenv

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// The ports are below those of outgoing connections (from 32768 on Linux, from 49152 on a
// Mac), so that none is taken by chance between its choice and its use.
const (
	firstPort = 12000
	lastPort  = 31999
	// blockPorts is the number of ports in a block; one of them is the claim.
	blockPorts = 50
)

// ports is what this process may hand out. It claims a block of ports by listening on the
// first one as long as the process lives, so that concurrent test processes never hand
// out the same port.
var ports struct {
	sync.Mutex
	claims []net.Listener
	next   int // port
	last   int // last port of the block; next > last: a block must be claimed
}

// FreeAddr returns an address of the host that nothing listens on and that no other test
// process gets.
func FreeAddr(host string) (string, error) {
	ports.Lock()
	defer ports.Unlock()
	for range lastPort - firstPort {
		if ports.next == 0 || ports.next > ports.last {
			if err := claim(); err != nil {
				return "", err
			}
		}
		addr := net.JoinHostPort(host, strconv.Itoa(ports.next))
		ports.next++
		l, err := net.Listen("tcp", addr)
		if err != nil {
			continue
		}
		if err := l.Close(); err != nil {
			return "", err
		}
		return addr, nil
	}
	return "", fmt.Errorf("no free port on %s from %d to %d", host, firstPort, lastPort)
}

// LoopbackAddr returns a FreeAddr of 127.0.0.1. It ends the test if no port is free.
func LoopbackAddr(t testing.TB) string {
	t.Helper()
	addr, err := FreeAddr("127.0.0.1")
	require.NoError(t, err)
	return addr
}

// claim takes a block that no other process has.
func claim() error {
	const blocks = (lastPort - firstPort + 1) / blockPorts
	start := os.Getpid() + len(ports.claims)
	for i := range blocks {
		first := firstPort + (start+i)%blocks*blockPorts
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(first)))
		if err != nil {
			continue
		}
		ports.claims = append(ports.claims, l)
		ports.next, ports.last = first+1, first+blockPorts-1
		return nil
	}
	return fmt.Errorf("no free block of %d ports from %d to %d", blockPorts, firstPort, lastPort)
}
