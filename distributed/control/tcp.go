package control

import (
	"net"
	"time"
)

// keepAlive makes the kernel send a probe after a second of silence and every
// second from then on, and give up after three: a host that is off or cut off is
// detected although nobody sends. (The kernel of a suspended process still
// answers; heartbeats detect that.)
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: time.Second, Interval: time.Second, Count: 3}

// userTimeout is how long sent bytes may stay unacknowledged. Without it the
// kernel retransmits them for a quarter of an hour, and sends no keep-alive
// probes meanwhile.
const userTimeout = 4 * time.Second

// tune sets the options of a TCP connection. Other connections, as in tests, stay
// as they are.
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
