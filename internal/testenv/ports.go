package testenv

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"sync/atomic"
)

// The ports are below those of outgoing connections (from 32768 on Linux, from 49152
// on a Mac), so that none is taken by chance between its choice and its use. Two
// test processes start at different ports.
const (
	firstPort = 12000
	lastPort  = 31999
)

var nextPort atomic.Uint32

// FreeAddr returns an address of the host on which nothing listens.
func FreeAddr(host string) (string, error) {
	const span = lastPort - firstPort + 1
	start := uint32(os.Getpid()) * 64
	for range span {
		port := firstPort + (start+nextPort.Add(1))%span
		addr := net.JoinHostPort(host, strconv.Itoa(int(port)))
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
