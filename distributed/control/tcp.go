package control

import (
	"net"
	"time"
)

// keepAlive makes the kernel send a probe after a second of silence, then one
// every second, and give up after three, so that a host that is off or cut off
// is detected although no rank sends. (Heartbeats detect a suspended process,
// because its kernel still answers.)
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: time.Second, Interval: time.Second, Count: 3}

// userTimeout is how long sent bytes may stay unacknowledged. It is needed
// because otherwise the kernel retransmits them for a quarter of an hour, and
// sends no keep-alive probes meanwhile.
const userTimeout = 4 * time.Second

// tune sets the options of a TCP connection. It leaves other connections, as in
// tests, unchanged.
func tune(nc net.Conn) error {
	tc, ok := nc.(*net.TCPConn)
	if !ok {
		return nil
	}
	if err := tc.SetNoDelay(true); err != nil {
		return err
	}
	if err := tc.SetKeepAliveConfig(keepAlive); err != nil {
		return err
	}
	return setUserTimeout(tc)
}
