package gather

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"ringmaster/groupplan"
	"ringmaster/internal/fanout"
	"ringmaster/internal/pairing"
	"ringmaster/internal/safetext"
)

// quietLimit is how long a host that joins may say nothing; it says something every few
// seconds.
const quietLimit = 30 * time.Second

// serve answers a host that has proved itself.
func (h *Host) serve(ctx context.Context, c *pairing.Conn) {
	g := guest{Host: h, conn: c, rank: -1}
	defer g.leave()
	for {
		kind, payload, err := c.Receive(ctx, quietLimit)
		if err != nil {
			return
		}
		if err := g.answer(ctx, kind, payload); err != nil {
			slog.Warn("a host that joins has a problem", "host", g.name, "address", c.RemoteAddr().String(), "error", err)
			if refuse(c, err) != nil {
				return
			}
		}
	}
}

// guest is a host at the desk. It stays while it is a rank.
type guest struct {
	*Host
	conn   *pairing.Conn
	rank   int // -1 before it has one
	name   string
	frames int // that it got
	copies bool

	// Guarded by mu of the Host, once it has a rank.
	doing  string
	seated bool
	rates  map[string]float64 // by the addresses that work for it; nil before it has said so
	uses   string
}

// mostLoad bounds the frames for one connection.
const mostLoad = 16 * mostFrames

func (g *guest) answer(ctx context.Context, kind uint16, payload []byte) error {
	switch kind {
	case msgApply:
		a, err := pairing.Read[application](payload)
		if err != nil {
			return err
		}
		return g.seat(a)
	case msgEcho:
		return g.conn.SendBytes(msgEcho, nil)
	case msgLoad:
		l, err := pairing.Read[load](payload)
		if err != nil {
			return err
		}
		return g.sendLoad(l.Frames)
	case msgCopy:
		r, err := pairing.Read[copying](payload)
		if err != nil {
			return err
		}
		return g.copy(ctx, r.Addr)
	case msgPaths:
		f, err := pairing.Read[found](payload)
		if err != nil {
			return err
		}
		return g.settle(f)
	case msgState:
		s, err := pairing.Read[state](payload)
		if err != nil || g.rank < 0 {
			return err
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		g.doing, g.seated = safetext.Line(s.Doing, mostHostName), s.Seated
		return g.move()
	}
	return fmt.Errorf("it sent message %d, which this version does not know: install the same version on both hosts", kind)
}

func (g *guest) sendLoad(frames int) error {
	if g.frames += frames; frames < 1 || frames > mostFrames || g.frames > mostLoad {
		return fmt.Errorf("%d messages to measure a path with are too many", frames)
	}
	for range frames {
		if err := g.conn.SendBytes(msgData, make([]byte, probeFrame)); err != nil {
			return err
		}
	}
	return nil
}

// seat gives the guest its rank.
func (g *guest) seat(a application) error {
	if g.rank >= 0 {
		return errors.New("it asked for a second rank")
	}
	s, err := g.seats.take(a, time.Now(), g.present)
	if err != nil {
		return err
	}
	g.mu.Lock()
	if old := g.guests[s.Rank]; old != nil && old.seated {
		g.mu.Unlock()
		return fmt.Errorf("this host has joined already, as rank %d; if that process has ended, try again in %v", s.Rank, quietLimit)
	}
	g.rank, g.name, g.doing = s.Rank, s.Name, "joins"
	g.guests[g.rank] = g
	g.mu.Unlock()
	slog.Info("a host joins", "host", s.Name, "rank", s.Rank, "address", g.conn.RemoteAddr().String())
	var offers []offer
	for _, l := range g.addrs() {
		offers = append(offers, offer{l.Addr.WithZone("").String(), l.Link})
	}
	return g.conn.Send(msgTicket, ticket{Rank: s.Rank, Size: groupplan.MaxRanks, Key: g.key, Port: g.port, Desk: g.deskPort(), Addrs: offers,
		Settings: g.o.Settings, Files: g.files})
}

// leave notes that the guest is gone.
func (g *guest) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.guests[g.rank] == g {
		delete(g.guests, g.rank)
	}
}

// copy begins to copy the model to the guest, as rank 0 of a group of two, and tells it where.
func (g *guest) copy(ctx context.Context, addr string) error {
	if g.rank < 0 || g.copies || len(g.parts) == 0 {
		return errors.New("it asked for a copy of the model that it cannot have")
	}
	at, ok := g.local(addr)
	if !ok { // it used one that the host does not know: a translation
		at = g.conn.LocalAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
	}
	g.copies = true
	cfg := copyConfig(0, net.JoinHostPort(at.String(), "0"), g.key, g.o.Encrypt)
	listening, ended := make(chan net.Addr, 1), make(chan error, 1)
	g.wg.Go(func() {
		err := fanout.LeadAt(ctx, cfg, g.parts, silent{}, func(a net.Addr) { listening <- a })
		if err != nil && ctx.Err() == nil {
			slog.Warn("the model was not copied", "host", g.name, "error", err)
		}
		ended <- err
	})
	select {
	case a := <-listening:
		return g.conn.Send(msgPort, port{a.(*net.TCPAddr).Port})
	case err := <-ended:
		return cmp.Or(err, errors.New("the copy ended before it began"))
	}
}
