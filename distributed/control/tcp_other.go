//go:build !linux

package control

import "net"

// setUserTimeout does nothing, because this system has no such option.
// Deadlines of Send and heartbeats end the connection here.
func setUserTimeout(*net.TCPConn) error { return nil }
