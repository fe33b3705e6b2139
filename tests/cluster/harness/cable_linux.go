package harness

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// maxFrame is the largest frame of a virtual interface: the virtio header, the
// Ethernet header and a TCP segment before segmentation (64 KiB).
const maxFrame = 10 + 18 + 1<<16

// cable forwards frames between two interfaces of a namespace with a delay. It replaces
// tc's netem, because not every kernel has that.
type cable struct {
	ends   [2]*os.File
	closed chan struct{}
	all    sync.WaitGroup
}

// Delay delays everything that the rank sends or receives by d. It may be called
// once for each rank.
func (n *Net) Delay(rank int, d time.Duration) error {
	hub, port := n.prefix+"hub", n.port(rank)
	near, far := "near"+strconv.Itoa(rank), "far"+strconv.Itoa(rank)
	for _, args := range [][]string{
		{"link", "add", near, "type", "veth", "peer", "name", far},
		{"link", "set", far, "master", "switch"},
		{"link", "set", near, "up"},
		{"link", "set", far, "up"},
		{"link", "set", port, "nomaster"},
	} {
		if err := tool("ip", append([]string{"-n", hub}, args...)...); err != nil {
			return err
		}
	}
	c := &cable{closed: make(chan struct{})}
	for i, name := range []string{port, near} {
		end, err := rawInterface(hub, name)
		if err != nil {
			_ = c.close()
			return err
		}
		c.ends[i] = end
	}
	c.all.Go(func() { c.forward(c.ends[0], c.ends[1], d) })
	c.all.Go(func() { c.forward(c.ends[1], c.ends[0], d) })
	n.cables = append(n.cables, c)
	return nil
}

// forward passes frames on, each d after its arrival, until the cable is closed.
func (c *cable) forward(from, to *os.File, d time.Duration) {
	queue := make(chan packet, 4096)
	c.all.Go(func() {
		for {
			select {
			case p := <-queue:
				if !c.sleep(time.Until(p.due)) {
					return
				}
				_, _ = to.Write(p.data) // TCP sends a lost frame again
			case <-c.closed:
				return
			}
		}
	})
	buf := make([]byte, maxFrame)
	for {
		n, err := from.Read(buf)
		if err != nil {
			select {
			case <-c.closed:
				return
			default:
				continue // the interface is down at the moment
			}
		}
		select {
		case queue <- packet{time.Now().Add(d), append([]byte(nil), buf[:n]...)}:
		default: // a full queue drops frames
		}
	}
}

// sleep waits for so long; it returns false if the cable has been closed. The last part
// of the wait is left to the system's timers, because the runtime's timers of an idle
// process are as coarse as a millisecond.
func (c *cable) sleep(d time.Duration) bool {
	const coarse = 2 * time.Millisecond
	if d > coarse {
		wait := time.NewTimer(d - coarse)
		select {
		case <-wait.C:
		case <-c.closed:
			wait.Stop()
			return false
		}
		d = coarse
	}
	if d > 0 {
		t := unix.NsecToTimespec(int64(d))
		_ = unix.Nanosleep(&t, nil) // a signal may end it early
	}
	select {
	case <-c.closed:
		return false
	default:
		return true
	}
}

func (c *cable) close() error {
	close(c.closed)
	var all error
	for _, e := range c.ends {
		if e != nil {
			all = errors.Join(all, e.Close())
		}
	}
	c.all.Wait()
	return all
}

// rawInterface opens an interface of a namespace for reading and writing whole
// frames. A virtio header of 10 bytes before each frame describes pending offloads
// (checksums, segmentation).
func rawInterface(namespace, name string) (*os.File, error) {
	f, err := inside(namespace, func() (*os.File, error) { return openRaw(name) })
	if err != nil {
		return nil, fmt.Errorf("interface %s of %s: %w", name, namespace, err)
	}
	return f, nil
}

func openRaw(name string) (*os.File, error) {
	iface, err := net.InterfaceByName(name)
	if err != nil {
		return nil, err
	}
	const all = unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8 // in network order
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, all)
	if err != nil {
		return nil, err
	}
	for _, option := range []int{unix.PACKET_VNET_HDR, unix.PACKET_IGNORE_OUTGOING} {
		if err = unix.SetsockoptInt(fd, unix.SOL_PACKET, option, 1); err != nil {
			break
		}
	}
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20)
	}
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: iface.Index})
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}
