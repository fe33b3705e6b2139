package mpi

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"ringmaster/distributed"
	"ringmaster/distributed/accept"
	"ringmaster/internal/network"
)

// The number of rank 0's addresses to try, and the time limit for one.
const (
	mostCandidates = 16
	probeLimit     = 2 * time.Second
)

// Coordinator agrees on the address where rank 0 listens for control
// connections. If any rank was configured with one (mine, "" for none), it is
// that address, and all configured ranks must agree. Otherwise it is an address
// of rank 0's host that every rank has just reached, with a free port. Loopback
// is tried first, because it works when all ranks are on one host. All ranks of
// the world call Coordinator once.
func (w *World) Coordinator(ctx context.Context, mine string) (string, error) {
	address, err := w.coordinator(ctx, mine)
	if err != nil {
		return "", fmt.Errorf("%w: coordinator: %w", distributed.ErrBootstrap, err)
	}
	return address, nil
}

func (w *World) coordinator(ctx context.Context, mine string) (string, error) {
	if w.rank > 0 {
		return w.askCoordinator(ctx, mine)
	}
	told, err := w.gather(ctx, kindBoot)
	if err != nil {
		return "", err
	}
	for r, l := range told {
		switch {
		case r == 0 || l.Coordinator == "" || l.Coordinator == mine:
		case mine == "":
			mine = l.Coordinator
		default:
			err := fmt.Errorf("rank %d at %s has --coordinator %s and other ranks have %s; give all ranks the same --coordinator, or none", r, l.Host, l.Coordinator, mine)
			_ = w.tellAll(ctx, controlMessage{Kind: kindNo, Why: err.Error()})
			return "", err
		}
	}
	if mine == "" {
		if mine, err = w.findAddress(ctx, told); err != nil {
			return "", err
		}
	}
	return mine, w.tellAll(ctx, controlMessage{Kind: kindCoordinator, Coordinator: mine})
}

// gather waits for a control message of one kind from every other rank: [Size].
func (w *World) gather(ctx context.Context, kind string) ([]controlMessage, error) {
	out := make([]controlMessage, w.size)
	err := w.do(ctx, func(stop flag) error {
		for n := 1; n < w.size; {
			p, l, err := w.hello.next(stop)
			if err != nil {
				return err
			}
			if l.Kind == kind && out[p].Kind == "" {
				out[p] = l
				n++
			}
		}
		return nil
	})
	if err != nil {
		var missing []string
		for p := 1; p < w.size; p++ {
			if out[p].Kind == "" {
				missing = append(missing, fmt.Sprintf("rank %d", p))
			}
		}
		return nil, fmt.Errorf("no message from %s: %w; start all processes of the job with --transport mpi", strings.Join(missing, ", "), err)
	}
	return out, nil
}

func (w *World) tellAll(ctx context.Context, l controlMessage) error {
	return w.do(ctx, func(stop flag) error {
		for p := 1; p < w.size; p++ {
			if err := w.say(p, l, stop); err != nil {
				return fmt.Errorf("rank %d: %w", p, err)
			}
		}
		return nil
	})
}

// ask sends a control message to rank 0 and waits for the answer.
func (w *World) ask(ctx context.Context, l controlMessage) (answer controlMessage, err error) {
	err = w.do(ctx, func(stop flag) error {
		if err := w.say(0, l, stop); err != nil {
			return err
		}
		_, answer, err = w.hello.next(stop)
		return err
	})
	if err != nil {
		return controlMessage{}, fmt.Errorf("rank 0 does not answer: %w; start all processes of the job with --transport mpi", err)
	}
	return answer, nil
}

// askCoordinator is Coordinator on every rank but 0.
func (w *World) askCoordinator(ctx context.Context, mine string) (string, error) {
	answer, err := w.ask(ctx, controlMessage{Kind: kindBoot, Host: w.host, Coordinator: mine})
	if err == nil && answer.Kind == kindProbe {
		answer, err = w.ask(ctx, controlMessage{Kind: kindProbed, Host: w.host, Reached: probe(ctx, answer.Addresses, answer.Nonce)})
	}
	switch {
	case err != nil:
		return "", err
	case answer.Kind == kindNo:
		return "", fmt.Errorf("rank 0: %s", answer.Why)
	case answer.Kind != kindCoordinator:
		return "", fmt.Errorf("rank 0 sent %q instead of its address", answer.Kind)
	}
	return answer.Coordinator, nil
}

// findAddress listens on every address of this host and returns the first that
// all ranks have reached.
func (w *World) findAddress(ctx context.Context, told []controlMessage) (string, error) {
	nonce := make([]byte, 16)
	rand.Read(nonce) // never fails
	var addresses []string
	var listeners []net.Listener
	var serving sync.WaitGroup
	defer serving.Wait()
	defer func() {
		for _, ln := range listeners {
			_ = ln.Close()
		}
	}()
	for _, ip := range candidates() {
		ln, err := network.Listen(ctx, net.JoinHostPort(ip, "0"), net.KeepAliveConfig{}, nil)
		if err != nil {
			continue
		}
		listeners = append(listeners, ln)
		addresses = append(addresses, ln.Addr().String())
		serving.Go(func() { answer(ln, nonce) })
	}
	if w.size == 1 && len(addresses) > 0 {
		return addresses[0], nil
	}
	if err := w.tellAll(ctx, controlMessage{Kind: kindProbe, Addresses: addresses, Nonce: nonce}); err != nil {
		return "", err
	}
	probed, err := w.gather(ctx, kindProbed)
	if err != nil {
		return "", err
	}
	var why []string
	for i, a := range addresses {
		missed := -1
		for r, l := range probed {
			if r > 0 && (i >= len(l.Reached) || !l.Reached[i]) && missed < 0 {
				missed = r
			}
		}
		if missed < 0 {
			return a, nil
		}
		why = append(why, fmt.Sprintf("rank %[2]d at %[3]s does not reach %[1]s", a, missed, told[missed].Host))
	}
	err = fmt.Errorf("no address of rank 0 at %s can be reached by all ranks (%s); give --coordinator HOST:PORT", w.host, strings.Join(why, "; "))
	_ = w.tellAll(ctx, controlMessage{Kind: kindNo, Why: err.Error()})
	return "", err
}

// answer sends the nonce to every client that connects, one after the other,
// until the listener is closed. No client can block it, because the nonce fits
// the send buffer of a new connection.
func answer(ln net.Listener, nonce []byte) {
	for {
		c, err := accept.Next(ln, nil, nil)
		if err != nil {
			return
		}
		_ = c.SetDeadline(time.Now().Add(probeLimit))
		_, _ = c.Write(nonce)
		_ = c.Close()
	}
}

// probe reports which of the addresses answer with the nonce.
func probe(ctx context.Context, addresses []string, nonce []byte) []bool {
	reached := make([]bool, len(addresses))
	var all sync.WaitGroup
	for i, a := range addresses {
		all.Go(func() {
			d := network.Dialer()
			d.Timeout = probeLimit
			c, err := d.DialContext(ctx, "tcp", a)
			if err != nil {
				return
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(probeLimit))
			said, err := io.ReadAll(io.LimitReader(c, int64(len(nonce)+1)))
			reached[i] = err == nil && bytes.Equal(said, nonce)
		})
	}
	all.Wait()
	return reached
}

// candidates returns the addresses of this host that other ranks might reach:
// loopback, then those of the interfaces that are up, IPv4 first. It leaves out
// link-local addresses and point-to-point links, because they are unsuitable
// for a coordinator.
func candidates() []string {
	out := []string{"127.0.0.1"}
	interfaces, err := net.Interfaces()
	if err != nil {
		return out
	}
	var four, six []string
	for _, i := range interfaces {
		if i.Flags&net.FlagUp == 0 || i.Flags&(net.FlagLoopback|net.FlagPointToPoint) != 0 {
			continue
		}
		addrs, err := i.Addrs()
		if err != nil {
			continue
		}
		for _, a := range addrs {
			p, err := netip.ParsePrefix(a.String())
			if err != nil || !p.Addr().IsGlobalUnicast() {
				continue
			}
			if p.Addr().Is4() {
				four = append(four, p.Addr().String())
			} else {
				six = append(six, p.Addr().String())
			}
		}
	}
	out = append(append(out, four...), six...)
	return out[:min(len(out), mostCandidates)]
}
