package control

import (
	"crypto/tls"
	"net"
	"time"
)

// goodbyeTimeout bounds how long ending a connection over TLS may wait for room for
// the last record, which says that this is the end. There is room unless the peer
// has stopped reading.
const goodbyeTimeout = 50 * time.Millisecond

// bounded is a connection below TLS. Its only write deadline comes from a tls.Conn
// that ends, which sets 5 s for its last record: longer than anything here may
// take. Conn sets its deadlines on the connection itself.
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

// shut closes the connection, over TLS with a record that says so unless sending
// has ended or a Send is in progress. mu is held.
func (c *Conn) shut() error {
	if over, ok := c.nc.(*tls.Conn); ok && c.sendErr == nil {
		_ = over.Close() // says only whether that record was sent
		return nil
	}
	return c.raw.Close()
}
