package control

import (
	"crypto/tls"
	"net"
	"time"
)

// goodbyeTimeout bounds how long ending a connection over TLS may wait until the
// last record, which announces the end, can be sent. It can be short because only a
// peer that has stopped reading causes a wait.
const goodbyeTimeout = 50 * time.Millisecond

// bounded is a connection below TLS. It shortens the write deadline of 5 s that an
// ending tls.Conn sets for its last record, because nothing here may take that
// long. Conn sets its own deadlines on the connection below.
type bounded struct{ net.Conn }

// SetWriteDeadline sets an earlier deadline.
func (b *bounded) SetWriteDeadline(t time.Time) error {
	if most := time.Now().Add(goodbyeTimeout); t.After(most) {
		t = most
	}
	return b.Conn.SetWriteDeadline(t)
}

// below returns the connection below TLS, or nc itself.
func below(nc net.Conn) net.Conn {
	over, ok := nc.(*tls.Conn)
	if !ok {
		return nc
	}
	if b, ok := over.NetConn().(*bounded); ok {
		return b.Conn
	}
	return over.NetConn()
}

// shut closes the connection. Over TLS it first sends a record that announces the
// end, unless sending has ended or a Send is in progress. mu is held.
func (c *Conn) shut() error {
	if over, ok := c.nc.(*tls.Conn); ok && c.sendErr == nil {
		_ = over.Close() // says only whether that record was sent
		return nil
	}
	return c.raw.Close()
}
