package helper

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"

	"ringmaster/distributed/rdma/verbs"
)

// version is the version of messages and rings. It is needed although both ends
// run the same file, because the file may have been replaced while the server
// runs.
const version = 1

// message is a request or its reply, which has the same ID. The call decides what
// a field means; most are empty.
type message struct {
	ID    uint64
	Call  string `json:",omitempty"`
	Errno int    `json:",omitempty"`
	Text  string `json:",omitempty"` // of an error without errno

	Version int           `json:",omitempty"`
	Names   []string      `json:",omitempty"` // of the library or the device, or of all devices
	Spin    int64         `json:",omitempty"`
	Obj     [3]uint32     // numbers of objects that the helper made, 0 for none
	Args    [2]int        // port and index, depth, access, kind
	Size    uint64        `json:",omitempty"` // bytes of the attached file, or slots of its ring
	Base    uint64        `json:",omitempty"`
	Keys    [2]uint32     // lkey and rkey
	Num     uint32        `json:",omitempty"`
	State   verbs.QPState `json:",omitempty"`
	Caps    verbs.Caps
	GID     verbs.GID
	GIDType verbs.GIDType     `json:",omitempty"`
	Change  *verbs.Transition `json:",omitempty"`
	Device  *verbs.DeviceAttr `json:",omitempty"`
	Port    *verbs.PortAttr   `json:",omitempty"`

	file *os.File // attached; the receiver closes it
}

// longest bounds a message, mostText the part of a text for people that is kept.
const (
	longest  = 1 << 20
	mostText = 4096
)

// send writes a message: its length, the JSON, and the file with the first byte.
// One goroutine at a time calls it.
func send(c *net.UnixConn, m *message) error {
	body, err := json.Marshal(m)
	if err != nil {
		return err
	}
	frame := append(binary.LittleEndian.AppendUint32(nil, uint32(len(body))), body...)
	var rights []byte
	if m.file != nil {
		rights = syscall.UnixRights(int(m.file.Fd()))
	}
	n, _, err := c.WriteMsgUnix(frame, rights, nil)
	if err == nil && n < len(frame) {
		_, err = c.Write(frame[n:])
	}
	return err
}

// receive reads a message. io.EOF means that the other end has closed.
func receive(c *net.UnixConn) (*message, error) {
	var head [4]byte
	oob := make([]byte, syscall.CmsgSpace(4))
	got, rights := 0, 0
	for got < len(head) {
		n, k, flags, _, err := c.ReadMsgUnix(head[got:], oob[rights:])
		if err != nil {
			return nil, err
		}
		if n == 0 {
			return nil, io.EOF
		}
		if flags&syscall.MSG_CTRUNC != 0 {
			return nil, errors.New("a message has more than one file, or this process has no descriptor left")
		}
		got += n
		rights += k
	}
	m := &message{}
	var err error
	if rights > 0 {
		if m.file, err = attached(oob[:rights]); err != nil {
			return nil, err
		}
	}
	length := binary.LittleEndian.Uint32(head[:])
	if length > longest {
		return nil, errors.Join(fmt.Errorf("a message claims %d bytes", length), m.close())
	}
	body := make([]byte, length)
	if _, err = io.ReadFull(c, body); err == nil {
		err = json.Unmarshal(body, m)
	}
	if err != nil {
		return nil, errors.Join(err, m.close())
	}
	m.Text = m.Text[:min(len(m.Text), mostText)]
	return m, nil
}

// attached returns the file that came with a message.
func attached(oob []byte) (*os.File, error) {
	all, err := syscall.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	var file *os.File
	for _, c := range all {
		fds, err := syscall.ParseUnixRights(&c)
		if err != nil {
			continue // of another kind
		}
		for _, fd := range fds {
			syscall.CloseOnExec(fd)
			f := os.NewFile(uintptr(fd), "shared memory")
			if file != nil {
				_ = f.Close() // at most one file is allowed
				continue
			}
			file = f
		}
	}
	return file, nil
}

// close closes the attached file unless it was taken.
func (m *message) close() error {
	if m.file == nil {
		return nil
	}
	f := m.file
	m.file = nil
	return f.Close()
}
