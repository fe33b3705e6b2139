package engine

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/engine/enginetest"
	"ringmaster/model"
)

// recoverer is a model that recovers while err is set.
type recoverer struct {
	*enginetest.Model
	err error
}

func (m *recoverer) Epoch() (uint64, error) {
	if m.err != nil {
		return 0, m.err
	}
	return m.Model.Epoch()
}

// TestRecovering: while its model recovers, an engine takes requests, is not ready, and
// reports how long reading may take.
func TestRecovering(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &recoverer{Model: enginetest.NewModel(enginetest.Size, enginetest.Options{})}
		e := start(t, m, Options{})
		for _, c := range []struct {
			err     error
			reading time.Duration
			yes     bool
		}{
			{nil, 0, false},
			{&model.RecoveringError{Cause: errRank1}, 0, true},
			{&model.RecoveringError{Cause: errRank1, Reading: time.Minute}, time.Minute, true},
			{nil, 0, false},
		} {
			synctest.Wait()
			m.err = c.err
			reading, yes := e.Recovering()
			require.Equal(t, c.reading, reading, "%v", c.err)
			require.Equal(t, c.yes, yes, "%v", c.err)
			if ready := e.Ready(); (ready != nil) != c.yes || c.yes && !errors.Is(ready, errRank1) {
				t.Fatalf("%v: ready %v", c.err, ready)
			}
			ask(t, e, Request{Prompt: encode("x"), MaxTokens: 1})
		}
	})
}
