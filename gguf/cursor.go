package gguf

import (
	"encoding/binary"
	"fmt"
)

// cursor reads little-endian values from data with bounds checks. A read past the end
// sets short; it and every later read return zeros.
type cursor struct {
	data  []byte
	pos   int
	short bool
}

// left is the number of bytes not yet read.
func (c *cursor) left() int { return len(c.data) - c.pos }

// take returns the next n bytes in place. If fewer are left it returns n zero
// bytes if n is at most 8, else nil.
func (c *cursor) take(n int) []byte {
	if c.short || n > c.left() {
		c.short = true
		if n <= 8 {
			return make([]byte, n)
		}
		return nil
	}
	c.pos += n
	return c.data[c.pos-n : c.pos]
}

func (c *cursor) uint32() uint32 { return binary.LittleEndian.Uint32(c.take(4)) }
func (c *cursor) uint64() uint64 { return binary.LittleEndian.Uint64(c.take(8)) }

// span returns the bytes of a name that was read earlier.
func (c *cursor) span(s span) []byte { return c.data[s.at : s.at+s.n] }

// name reads the name of a key or tensor: its position and its bytes.
func (c *cursor) name() (at int, name []byte, err error) {
	n := c.uint64()
	switch {
	case c.short:
		return 0, nil, fmt.Errorf("file ends before its name")
	case n < 1 || n > maxNameBytes:
		return 0, nil, fmt.Errorf("name of %d bytes; expected 1 to %d", n, maxNameBytes)
	case n > uint64(c.left()):
		return 0, nil, fmt.Errorf("name of %d bytes, but only %d bytes follow", n, c.left())
	}
	at = c.pos
	return at, c.take(int(n)), nil
}

// skipString skips a string value.
func (c *cursor) skipString() error {
	n := c.uint64()
	switch {
	case c.short:
		return fmt.Errorf("file ends inside the length of its string")
	case n > uint64(c.left()):
		return fmt.Errorf("string of %d bytes, but only %d bytes follow", n, c.left())
	}
	c.take(int(n))
	return nil
}

// integer decodes an integer value of the given kind; nil for any other kind.
func integer(kind uint32, b []byte) any {
	switch kind {
	case kindUint8:
		return b[0]
	case kindInt8:
		return int8(b[0])
	case kindUint16:
		return binary.LittleEndian.Uint16(b)
	case kindInt16:
		return int16(binary.LittleEndian.Uint16(b))
	case kindUint32:
		return binary.LittleEndian.Uint32(b)
	case kindInt32:
		return int32(binary.LittleEndian.Uint32(b))
	case kindUint64:
		return binary.LittleEndian.Uint64(b)
	case kindInt64:
		return int64(binary.LittleEndian.Uint64(b))
	}
	return nil
}

// kindName is GGUF's name of a value kind.
func kindName(kind uint32) string {
	names := [...]string{"uint8", "int8", "uint16", "int16", "uint32", "int32", "float32", "bool", "string", "array", "uint64", "int64", "float64"}
	if int(kind) < len(names) {
		return names[kind]
	}
	return fmt.Sprintf("value type %d", kind)
}
