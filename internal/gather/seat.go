package gather

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"time"

	"ringmaster/internal/pairing"
)

// addr is the address of the group's host that this one uses.
func (s *Seat) addr() string { return s.paths[s.used].addr }

// choose tells the desk which addresses work, and takes the one that it names.
func (s *Seat) choose(ctx context.Context, uses string) error {
	if at(s.paths, "") < 0 {
		return fmt.Errorf("no address of the group works: %s", describe(s.paths, -1))
	}
	if err := s.conn.Send(msgPaths, found{rates(s.paths), uses}); err != nil {
		return err
	}
	text, err := receive(ctx, s.conn, msgUse)
	if err != nil {
		return err
	}
	return s.take(text)
}

// take uses the address that the desk names.
func (s *Seat) take(text []byte) error {
	u, err := pairing.Read[use](text)
	if err != nil {
		return err
	}
	best := at(s.paths, u.Addr)
	if best < 0 {
		return fmt.Errorf("the group names the address %q, which does not work here", clean(u.Addr))
	}
	if u.Alone {
		slog.Warn("no network reaches all hosts of the group: ranks that do not reach each other stay out", "address", s.paths[best].addr)
	}
	s.used = best
	s.Coordinator = net.JoinHostPort(s.addr(), strconv.Itoa(s.port))
	return nil
}

// sayEvery is how often a host says at the desk that it is there.
const sayEvery = quietLimit / 6

// Moves waits until this host is to use another network, because a host that joined does not
// have the one before, or another address or rank, because the group has started again, and
// then changes Coordinator and Rank. It returns false when ctx has ended. The group may be away
// meanwhile.
func (s *Seat) Moves(ctx context.Context) bool {
	coordinator, rank := s.Coordinator, s.Rank
	for ctx.Err() == nil {
		if s.conn != nil {
			moved, err := s.attend(ctx)
			if moved {
				return true
			}
			slog.Debug("the desk of the group does not answer", "error", err)
			s.conn.Close()
			s.conn = nil
		}
		pause := time.NewTimer(sayEvery)
		select {
		case <-ctx.Done():
		case <-pause.C:
		}
		pause.Stop()
		if err := s.back(ctx); err != nil {
			slog.Debug("the desk of the group is not reached", "error", err)
		} else if s.Coordinator != coordinator || s.Rank != rank {
			return true
		}
	}
	return false
}

// Close ends the seat.
func (s *Seat) Close() {
	if s.conn != nil {
		s.conn.Close()
	}
}

// attend says that this host is there until it is to move.
func (s *Seat) attend(ctx context.Context) (moved bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := keepSaying(ctx, s.conn, state{Seated: true})
	defer stop()
	for {
		kind, payload, err := s.conn.Receive(ctx, attendLimit)
		if err != nil {
			return false, err
		}
		if kind != msgUse {
			return false, fmt.Errorf("the group sent message %d", kind)
		}
		was := s.used
		if err := s.take(payload); err != nil {
			return false, err
		}
		if s.used != was {
			return true, nil
		}
	}
}

// attendLimit bounds the wait for a move. The connection then is made again; that it is alive is
// shown by what this host sends.
const attendLimit = time.Hour

// back returns to the desk after the connection was lost. The group may have started again at
// other addresses or ports, and may have given this host's rank to another host.
func (s *Seat) back(ctx context.Context) (err error) {
	c, elsewhere, err := s.redial(ctx)
	if err != nil {
		return err
	}
	s.conn = c
	defer func() {
		if err != nil {
			c.Close()
			s.conn = nil
		}
	}()
	k, err := apply(ctx, c, s.member)
	if err != nil {
		return err
	}
	if k.Rank != s.Rank {
		slog.Warn("the group gave this host's rank to another host", "rank", k.Rank, "rank_before", s.Rank)
	}
	s.Rank, s.port, s.desk = k.Rank, k.Port, k.Desk
	if !elsewhere {
		return s.choose(ctx, plainAddr(s.addr()))
	}
	host, _, err := net.SplitHostPort(c.RemoteAddr().String())
	if err != nil {
		return err
	}
	paths := prove(ctx, candidates(k.Addrs, host, upInterfaces()), k.Desk, s.Group, k.Key)
	best := at(paths, "")
	if best < 0 {
		return fmt.Errorf("no address of the group works: %s", describe(paths, -1))
	}
	s.paths, s.used = paths, best
	if err := s.keep(&k, host); err != nil {
		return err
	}
	return s.choose(ctx, "")
}

// redial proves this host at the address that it uses, or elsewhere: where the group was
// before, at the host that a person named, or where it is announced.
func (s *Seat) redial(ctx context.Context) (c *pairing.Conn, elsewhere bool, err error) {
	proof := pairing.Proof{Key: s.member.Key}
	c, _, err = pairing.Dial(ctx, net.JoinHostPort(s.addr(), strconv.Itoa(s.desk)), s.Group.ID, proof)
	if err == nil || ctx.Err() != nil {
		return c, false, err
	}
	known := slices.Clone(s.member.Desks)
	if s.joiner.Host != "" {
		known = append(known, withPort(s.joiner.Host))
	}
	if c, err = s.joiner.dial(ctx, target{s.Group, known}, proof); err != nil && ctx.Err() == nil {
		if t, found := s.joiner.look(ctx)[s.Group.ID]; found {
			c, err = s.joiner.dial(ctx, t, proof)
		}
	}
	return c, true, err
}
