package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"ringmaster/distributed"
	"ringmaster/distributed/control"
)

// Drain: a person asks the leader to let a rank leave. The request arrives over a control
// connection, so in a cluster with a key only its holders can make one.

// DrainRefusedError says why the leader did not let a rank leave. The group is as it was.
type DrainRefusedError struct{ Reason string }

// Error is the reason.
func (e *DrainRefusedError) Error() string { return e.Reason }

// Drain asks the leader at cfg.Coordinator to continue without a rank, and returns when
// that rank has left: the next epoch runs without it, and its process ends. It uses only
// the coordinator and the key of cfg. The error is a DrainRefusedError if the leader
// refuses. If ctx ends before the rank has left, the rank still leaves.
//
// name is how the leader names the rank.
func Drain(ctx context.Context, cfg Config, rank int) (name string, err error) {
	cfg = cfg.withDefaults()
	conn, err := control.Dial(ctx, cfg.Coordinator, cfg.control())
	if err != nil {
		return "", fmt.Errorf("no leader at %s: %w; check that rank 0 is running with --coordinator %s", cfg.Coordinator, err, cfg.Coordinator)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	m := message{Kind: kindDrain, Peer: rank}
	if err := conn.Send(control.Frame{Type: uint16(m.Kind), Payload: m.encode()}); err != nil {
		return "", fmt.Errorf("the leader at %s: %w", cfg.Coordinator, err)
	}
	for {
		f, err := conn.Receive()
		switch {
		case err != nil && ctx.Err() != nil:
			return "", fmt.Errorf("rank %d has not left yet; it leaves as soon as the other ranks can continue: %w", rank, context.Cause(ctx))
		case err != nil:
			return "", fmt.Errorf("the leader at %s: %s before rank %d had left; see /readyz there", cfg.Coordinator, closeCause(err), rank)
		}
		switch m, err := decode(kind(f.Type), f.Payload); {
		case err != nil:
			return "", fmt.Errorf("the leader at %s: %w", cfg.Coordinator, err)
		case m.Kind == kindDrained:
			return distributed.RankName(m.Peer, m.Host), nil
		case m.Kind == kindReject:
			return "", &DrainRefusedError{m.Reason}
		case m.Kind == kindShutdown:
			return "", fmt.Errorf("the group has ended: %s", m.Reason)
		}
	}
}

// errDrained: the leader continues without this rank, because a person asked for that.
var errDrained = errors.New("drained")

// drain handles the request that a rank leaves. All checks come before the first change,
// so that a refusal leaves the group as it was.
func (m *stateMachine) drain(id, rank int) {
	if why := m.keeps(rank); why != "" {
		m.reject(id, why, false)
		return
	}
	m.do(askFit{id, rank, m.hellos(m.without(rank))})
}

// keeps says why a rank cannot leave, as far as that is known without a plan; "" means
// that it can.
func (m *stateMachine) keeps(rank int) string {
	switch {
	case rank == 0:
		return "rank 0 leads the group and cannot leave it; to end the group, stop rank 0"
	case rank < 0 || rank >= len(m.members):
		return fmt.Sprintf("rank %d does not exist: the followers of this group have ranks 1 to %d", rank, len(m.members)-1)
	case m.members[rank] == nil:
		return fmt.Sprintf("%s is not connected%s", m.name(rank), m.waitingFor())
	case m.members[rank].leaving:
		return fmt.Sprintf("%s is already leaving: %s", m.name(rank), m.members[rank].goodbye)
	case m.onLoss != Continue:
		return fmt.Sprintf("the leader runs with --on-loss %v, so the others would wait for %s; start rank 0 with --on-loss continue, or stop the rank", m.onLoss, m.name(rank))
	case m.phase != running:
		_, err := m.status()
		return fmt.Sprintf("no epoch is running that %s could leave in order: %v; try again when /readyz returns 200", m.name(rank), err)
	case !m.enough(m.without(rank)):
		return fmt.Sprintf("only %s would be left, and --on-loss continue:%d allows no fewer", m.names(m.without(rank)), m.minRanks)
	}
	return ""
}

// without returns the candidates for the next epoch, less one rank.
func (m *stateMachine) without(rank int) []int {
	return slices.DeleteFunc(m.candidates(), func(r int) bool { return r == rank })
}

// hellos returns the hellos of ranks.
func (m *stateMachine) hellos(ranks []int) []Hello {
	out := make([]Hello, len(ranks))
	for i, r := range ranks {
		out[i] = m.members[r].hello
	}
	return out
}

// fitAnswered is the immediate answer to askFit: why is "" if the other ranks can run the
// model.
func (m *stateMachine) fitAnswered(id, rank int, why string) {
	if why != "" {
		m.reject(id, fmt.Sprintf("the other ranks cannot run the model without %s: %s", m.name(rank), why), false)
		return
	}
	c, x := m.conns[id], m.members[rank]
	c.drains = rank
	goodbye := "drained from " + c.addr
	x.drained = true
	if !slices.Contains(m.group, rank) {
		m.letGo(rank, goodbye)
		return
	}
	m.departs(rank, goodbye)
}

// letGo ends the connection of a rank that leaves, and its process then ends. A drained
// rank gets a message first, because it did not ask to leave.
func (m *stateMachine) letGo(rank int, reason string) {
	x := m.members[rank]
	if x.drained {
		m.do(send{x.conn, fmt.Sprintf("rank %d", rank), message{Kind: kindDrained, Reason: reason}})
	}
	m.closed(x.conn, reason)
}

// drained answers those who asked for a rank to leave: it has left.
func (m *stateMachine) drained(rank int) {
	m.answerDrains(message{Kind: kindDrained, Peer: rank, Host: m.gone[rank].host}, func(r int) bool { return r == rank })
}

// answerDrains sends the last message on the connections that wait for ranks to leave.
func (m *stateMachine) answerDrains(msg message, of func(rank int) bool) {
	for _, id := range slices.Sorted(maps.Keys(m.conns)) {
		if c := m.conns[id]; c.drains > 0 && of(c.drains) {
			m.do(send{id, fmt.Sprintf("connection %d", id), msg})
			m.do(hangUp{id})
			delete(m.conns, id)
		}
	}
}

// overstaying releases the leaving ranks for which no epoch without them has formed in
// time.
func (m *stateMachine) overstaying() {
	for r, x := range m.members {
		if x != nil && x.drained && x.leaving && m.now-x.leavingSince > m.drainTimeout {
			m.letGo(r, fmt.Sprintf("%s; no epoch without it ran within %v", x.goodbye, m.drainTimeout))
		}
	}
}
