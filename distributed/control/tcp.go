package control

import (
	"net"
	"time"
)

// keepAlive lets the kernel ask after a second of silence, every second, and
// give up after three questions: a machine that is off or cut off is noticed
// though nobody sends. (One that is stopped still answers; heartbeats are for
// that.)
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: time.Second, Interval: time.Second, Count: 3}

// userTimeout is how long sent bytes may stay unanswered. Without it the kernel
// repeats them for a quarter of an hour, and asks no keep-alive question
// meanwhile.
const userTimeout = 4 * time.Second

// tune sets up a TCP connection: no waiting for more to send, and the probes.
// Other connections stay as they are.
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
