package pairing

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"time"

	"ringmaster/distributed/control"
	"ringmaster/internal/network"
	"ringmaster/internal/safetext"
)

// ErrCode: the two sides do not have the same code.
var ErrCode = errors.New("the code is wrong")

// RefusedError is why a desk did not let this host try.
type RefusedError struct{ Reason string }

// Error returns the reason.
func (e *RefusedError) Error() string { return "refused: " + e.Reason }

// Proof is how a host proves itself: by the code, or by the group's key.
type Proof struct {
	Code string
	Key  []byte
}

// dialLimit bounds the making of a connection.
const dialLimit = 3 * time.Second

// Identify asks the desk at addr which group it is of. The answer is not proved.
func Identify(ctx context.Context, addr string) (Group, error) {
	nc, err := connect(ctx, addr)
	if err != nil {
		return Group{}, err
	}
	defer nc.Close()
	stop := context.AfterFunc(ctx, func() { nc.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := nc.SetDeadline(time.Now().Add(greetLimit)); err != nil {
		return Group{}, err
	}
	g, err := greet(nc, asking)
	if err != nil {
		return Group{}, fmt.Errorf("%s: %w", addr, err)
	}
	return g, nil
}

// connect connects to a desk.
func connect(ctx context.Context, addr string) (net.Conn, error) {
	d := network.Dialer()
	d.Timeout = dialLimit
	nc, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w%s", addr, err, network.Target{Addr: addr, Who: "the group"}.Cure(err))
	}
	return nc, nil
}

// Dial connects to the desk at addr and proves this host to the group with an id, to any group
// if id is "". The error wraps ErrCode if the code is wrong, or a *RefusedError if the desk
// refused to try it.
func Dial(ctx context.Context, addr, id string, proof Proof) (*Conn, Group, error) {
	nc, err := connect(ctx, addr)
	if err != nil {
		return nil, Group{}, err
	}
	c, g, err := prove(ctx, nc, id, proof)
	if err != nil {
		nc.Close()
		return nil, g, fmt.Errorf("%s: %w", addr, err)
	}
	return c, g, nil
}

// prove is Dial on a connection.
func prove(ctx context.Context, nc net.Conn, id string, proof Proof) (*Conn, Group, error) {
	stop := context.AfterFunc(ctx, func() { nc.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := nc.SetDeadline(time.Now().Add(greetLimit)); err != nil {
		return nil, Group{}, err
	}
	how := byte(byCode)
	if proof.Key != nil {
		how = byKey
	}
	g, err := greet(nc, how)
	if err == nil && id != "" && g.ID != id {
		err = fmt.Errorf("this is the group %v, not the one that was meant", g)
	}
	if err != nil {
		return nil, g, err
	}
	o := options(proof.Key, "key")
	if how == byCode {
		secret, err := offer(nc, generator(plainCode(proof.Code), g.channel(), nil))
		if err != nil {
			return nil, g, err
		}
		o = options(secret, "code")
	}
	if err := nc.SetDeadline(time.Time{}); err != nil {
		return nil, g, err
	}
	c, err := control.Client(ctx, nc, o)
	if err != nil {
		_, wrong := errors.AsType[*control.RefusedError](err)
		wrong = wrong || errors.Is(err, control.ErrKey)
		if wrong && how == byCode {
			err = fmt.Errorf("%w: give the one that 'ringmaster up' of %v shows now", ErrCode, g)
		} else if wrong {
			err = fmt.Errorf("the group %v no longer knows this host: join it again with the code", g)
		}
		return nil, g, err
	}
	c.LimitReceive(mostFrame)
	return &Conn{c: c, ByCode: how == byCode}, g, nil
}

// greet says how this side will prove itself, and reads which group it has reached.
func greet(nc net.Conn, how byte) (Group, error) {
	if _, err := nc.Write(append([]byte(magic), how)); err != nil {
		return Group{}, err
	}
	status, err := readFull(nc, 1)
	if err != nil {
		return Group{}, fmt.Errorf("no answer as from 'ringmaster up': %w", err)
	}
	switch status[0] {
	case refused:
		why, err := readShort(nc)
		if err != nil {
			return Group{}, err
		}
		return Group{}, &RefusedError{safetext.Line(why, 255)}
	case welcomed:
	default:
		return Group{}, errors.New("the answer is not one of 'ringmaster up': check the port")
	}
	id, err := readFull(nc, idSize)
	if err != nil {
		return Group{}, err
	}
	name, err := readShort(nc)
	g := Group{ID: hex.EncodeToString(id), Name: safetext.Line(name, maxName)}
	if err == nil && !g.Valid() {
		err = errors.New("the group has no name that can be used")
	}
	return g, err
}
