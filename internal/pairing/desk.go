package pairing

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/cloudflare/circl/group"

	"ringmaster/distributed/accept"
	"ringmaster/distributed/control"
	"ringmaster/internal/network"
)

// mostConns bounds the hosts that are connected at once and have proved themselves: the probes
// of seven hosts over several networks.
const mostConns = 64

// DeskOptions configure a Desk.
type DeskOptions struct {
	Group  Group
	Key    []byte // of the group; a host that has it needs no code
	Listen string // HOST:PORT
	// Serve talks to a host that has proved itself; it closes nothing. ctx ends with the desk.
	Serve func(ctx context.Context, c *Conn)
	// Code is told each code, the first one before Open returns; why says what was wrong with
	// the one before.
	Code func(code, why string)
}

// Desk is where a group admits hosts.
type Desk struct {
	o        DeskOptions
	listener net.Listener
	pending  *accept.Pending
	proved   chan struct{} // a place for each connection that may be served
	wg       sync.WaitGroup
	ctx      context.Context
	cancel   context.CancelFunc
	limits   *limits

	mu        sync.Mutex
	generator group.Element // of the code
	number    int           // of the code
}

// Open listens, and admits hosts until ctx ends or Close.
func Open(ctx context.Context, o DeskOptions) (*Desk, error) {
	if !o.Group.Valid() {
		return nil, fmt.Errorf("the group %q has no id, or no name of at most %d bytes", o.Group.Name, maxName)
	}
	ln, err := network.Listen(ctx, o.Listen, net.KeepAliveConfig{Enable: true}, nil)
	if err != nil {
		return nil, err
	}
	d := &Desk{o: o, listener: ln, pending: accept.NewPending(accept.DefaultLimit()), proved: make(chan struct{}, mostConns), limits: newLimits(time.Now)}
	d.ctx, d.cancel = context.WithCancel(ctx)
	d.renew("")
	context.AfterFunc(d.ctx, func() {
		ln.Close()
		d.pending.Close()
	})
	d.wg.Go(d.accept)
	return d, nil
}

// Addr is where the desk listens.
func (d *Desk) Addr() net.Addr { return d.listener.Addr() }

// Close ends the desk and its connections.
func (d *Desk) Close() {
	d.cancel()
	d.wg.Wait()
}

// renew replaces the code.
func (d *Desk) renew(why string) {
	code := NewCode()
	g := generator(plainCode(code), d.o.Group.channel(), nil)
	d.mu.Lock()
	d.generator, d.number = g, d.number+1
	d.mu.Unlock()
	d.o.Code(code, why)
}

func (d *Desk) accept() {
	for {
		nc, err := accept.Next(d.listener, d.pending.Evict, func(err error) { slog.Warn("cannot accept a host that joins", "error", err) })
		if err != nil {
			return // closed
		}
		d.pending.Add(nc)
		d.wg.Go(func() { d.meet(nc) })
	}
}

// meet lets a host prove itself and serves it.
func (d *Desk) meet(nc net.Conn) {
	defer nc.Close()
	c, err := d.verify(nc)
	if !d.pending.Remove(nc) {
		return
	}
	if err != nil {
		if d.ctx.Err() == nil && !errors.Is(err, errAsked) && d.limits.mayLog() {
			slog.Warn("a host did not prove itself", "address", nc.RemoteAddr().String(), "error", err)
		}
		return
	}
	defer c.Close()
	stop := context.AfterFunc(d.ctx, c.Close)
	defer stop()
	select {
	case d.proved <- struct{}{}:
		defer func() { <-d.proved }()
		d.o.Serve(d.ctx, c)
	default:
		slog.Warn("too many hosts join at once", "address", nc.RemoteAddr().String(), "most", mostConns)
	}
}

// verify is the desk's part of an exchange.
func (d *Desk) verify(nc net.Conn) (*Conn, error) {
	if err := nc.SetDeadline(time.Now().Add(greetLimit)); err != nil {
		return nil, err
	}
	greeting, err := readFull(nc, len(magic)+1)
	if err != nil {
		return nil, err
	}
	how := greeting[len(magic)]
	if string(greeting[:len(magic)]) == magic && how == asking {
		return nil, errors.Join(errAsked, d.welcome(nc))
	}
	if string(greeting[:len(magic)]) != magic || how != byCode && how != byKey {
		return nil, fmt.Errorf("it is no host that joins: it sent %q", greeting)
	}
	o := options(d.o.Key, "key")
	attempt := func(wrong bool) {}
	if how == byCode {
		var secret []byte
		if secret, attempt, err = d.tryCode(nc); err != nil {
			return nil, err
		}
		o = options(secret, "code")
	} else if err := d.welcome(nc); err != nil {
		return nil, err
	}
	if err := nc.SetDeadline(time.Time{}); err != nil {
		attempt(true)
		return nil, err
	}
	c, err := control.Server(d.ctx, nc, o)
	attempt(err != nil) // whoever breaks off may have tried a code
	switch {
	case errors.Is(err, control.ErrKey) && how == byCode:
		return nil, errors.New("it does not have the code")
	case errors.Is(err, control.ErrKey):
		return nil, errors.New("it does not have the group's key: it must join with the code")
	case err != nil:
		return nil, err
	}
	c.LimitReceive(mostFrame)
	return &Conn{c: c, ByCode: how == byCode}, nil
}

// errAsked: the host only asked which group this is.
var errAsked = errors.New("the host only asked which group this is")

// welcome says which group this is.
func (d *Desk) welcome(nc net.Conn) error {
	id, err := hex.DecodeString(d.o.Group.ID)
	if err == nil {
		_, err = nc.Write(append(append([]byte{welcomed}, id...), short(d.o.Group.Name)...))
	}
	return err
}

// tryCode is the desk's part of a CPace exchange. The function that it returns must be called
// once it is known whether the host has another secret.
func (d *Desk) tryCode(nc net.Conn) (secret []byte, attempt func(wrong bool), err error) {
	from := accept.Origin(nc.RemoteAddr())
	d.mu.Lock()
	g, number := d.generator, d.number
	d.mu.Unlock()
	if why := d.limits.begin(from, number); why != "" {
		_, _ = nc.Write(append([]byte{refused}, short(why)...)) // the peer may be gone
		return nil, nil, fmt.Errorf("refused: %s", why)
	}
	attempt = func(wrong bool) {
		if d.limits.end(number, wrong) {
			d.renew(fmt.Sprintf("%d wrong codes were tried, the last from %s", mostWrong, nc.RemoteAddr()))
		}
	}
	if err := d.welcome(nc); err != nil {
		attempt(false) // nothing was tried
		return nil, nil, err
	}
	theirs, err := readFull(nc, pointSize)
	if err != nil {
		attempt(false)
		return nil, nil, err
	}
	x, err := begin(g)
	if err == nil {
		secret, err = x.finish(theirs, lv(nil, theirs, nil), lv(nil, x.point, nil), nil)
	}
	if err == nil {
		_, err = nc.Write(x.point)
	}
	if err != nil {
		attempt(true)
	}
	return secret, attempt, err
}

// offer is the host's part of a CPace exchange.
func offer(nc net.Conn, g group.Element) ([]byte, error) {
	x, err := begin(g)
	if err != nil {
		return nil, err
	}
	if _, err := nc.Write(x.point); err != nil {
		return nil, err
	}
	theirs, err := readFull(nc, pointSize)
	if err != nil {
		return nil, err
	}
	return x.finish(theirs, lv(nil, x.point, nil), lv(nil, theirs, nil), nil)
}
