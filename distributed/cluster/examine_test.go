package cluster

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed/control"
)

// TestExaminer: a person with the key makes one request after the other, even much later
// and during work. A second person must wait for the first to leave. Without the key no
// one gets an answer.
func TestExaminer(t *testing.T) {
	key := []byte("the key of this cluster")
	r := newRigThat(t, Continue, 2, key, func(cfg *Config) {
		cfg.Examine = func(ctx context.Context, request []byte) []byte {
			if string(request) == "stay" {
				<-ctx.Done()
			}
			return append([]byte("answer to "), request...)
		}
	})
	r.follow(1, nil)
	e := r.running(0)
	ctx := soon(t)
	cfg := Config{Coordinator: r.addr, Key: key, PeerTimeout: 2 * time.Second}
	x, err := Examine(ctx, cfg)
	require.NoError(t, err)
	defer x.Close()
	for _, ask := range []string{"a", "b"} {
		got, err := x.Ask(ctx, []byte(ask))
		require.NoError(t, err)
		require.Equal(t, "answer to "+ask, string(got))
		require.NoError(t, r.do(e, "work"))
	}
	second, err := Examine(ctx, cfg)
	require.NoError(t, err)
	defer second.Close()
	_, err = second.Ask(ctx, []byte("c"))
	var refused *RefusedError
	require.ErrorAs(t, err, &refused)
	require.ErrorContains(t, err, "examining the group")
	_, err = x.Ask(ctx, make([]byte, mostHello))
	require.ErrorContains(t, err, "at most")

	why := errors.New("enough")
	short, enough := context.WithCancelCause(ctx)
	time.AfterFunc(10*time.Millisecond, func() { enough(why) })
	_, err = x.Ask(short, []byte("stay"))
	require.ErrorIs(t, err, why)
	require.Eventually(t, func() bool { // the first has gone
		third, err := Examine(ctx, cfg)
		require.NoError(t, err)
		defer third.Close()
		_, err = third.Ask(ctx, []byte("d"))
		return err == nil
	}, limit, 5*time.Millisecond)

	_, err = Examine(ctx, Config{Coordinator: r.addr, Key: []byte("some other key of 16 or more")})
	var strange *control.RefusedError
	require.ErrorAs(t, err, &strange)
	require.NoError(t, r.do(e, "still the same epoch"))
}

// TestExaminesNothing: a leader without Config.Examine says so.
func TestExaminesNothing(t *testing.T) {
	r := newRig(t, 1, nil)
	ctx := soon(t)
	x, err := Examine(ctx, Config{Coordinator: r.addr})
	require.NoError(t, err)
	defer x.Close()
	_, err = x.Ask(ctx, []byte("a"))
	require.ErrorContains(t, err, "cannot examine its group")
}

// TestExaminingIsBounded: connections that end before their requests are answered do not
// accumulate work for the program, and the program owns the bytes of a request.
func TestExaminingIsBounded(t *testing.T) {
	m := newStateMachine(params{self: testHello(0, 2), peerTimeout: time.Second})
	ask := func(id int, payload []byte) []action {
		m.connected(id, "10.0.0.9:4000")
		m.receive(id, message{Kind: kindExamine, Payload: payload})
		return m.take()
	}
	asked := func(done []action) []byte {
		i := slices.IndexFunc(done, func(a action) bool { _, ok := a.(askExamine); return ok })
		if i < 0 {
			return nil
		}
		return done[i].(askExamine).request
	}
	for id := 1; id <= mostExamining; id++ {
		payload := []byte("request")
		request := asked(ask(id, payload))
		copy(payload, "xxxxxxx") // as the next message of the connection does
		require.Equal(t, "request", string(request))
		m.closed(id, "gone")
		m.take()
	}
	id := mostExamining + 1
	done := ask(id, []byte("one too many"))
	require.Nil(t, asked(done))
	require.Contains(t, done[len(done)-2].(send).m.Reason, "still being answered")
	m.examined(1, []byte("answer without a receiver"))
	require.Empty(t, m.take())
	require.NotNil(t, asked(ask(id+1, []byte("request"))))
}
