package api

import (
	"bufio"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/engine"
)

// TestPings checks that a silent stream of the Messages API begins at the first tick, and
// has a ping and the progress of the prefill at every tick.
func TestPings(t *testing.T) {
	gate := make(chan struct{})
	e := &fakeEngine{script: func(_ int, r engine.Request) ([]act, error) {
		acts := answerActs(len(r.Prompt), "Hi")
		acts[0].wait = gate
		progress := act{wait: gate, event: engine.Event{Progress: engine.Progress{Done: 3, Total: 9}}}
		return append([]act{progress}, acts...), nil
	}}
	c := testConfig(e)
	clock := newClock()
	c.Clock = clock
	url := serve(t, c)
	done := make(chan *bufio.Scanner)
	go func() {
		resp, err := post(t, t.Context(), url+"/v1/messages", `{"max_tokens":5,`+user+`,"stream":true}`)
		if err != nil {
			panic(err)
		}
		done <- bufio.NewScanner(resp.Body)
	}()
	clock.ticks <- time.Time{}
	lines := <-done
	next := func() string {
		for lines.Scan() {
			if text := lines.Text(); text != "" && !strings.HasPrefix(text, "event: ") {
				return text
			}
		}
		return "EOF"
	}
	require.Contains(t, next(), `"type":"message_start"`)
	require.Equal(t, ": keep-alive", next())
	require.Equal(t, `data: {"type":"ping"}`, next())
	gate <- struct{}{}
	// The event of the progress and the tick may come in either order; a later
	// tick has it.
	for {
		clock.ticks <- time.Time{}
		comment := next()
		require.Equal(t, `data: {"type":"ping"}`, next())
		if comment == ": keep-alive: 3 of 9 tokens of the prompt" {
			break
		}
		require.Equal(t, ": keep-alive", comment)
	}
	gate <- struct{}{}
	require.Contains(t, next(), `"type":"content_block_start"`)
	require.Contains(t, next(), `"text":"Hi"`)
	require.Contains(t, next(), `"type":"content_block_stop"`)
	require.Contains(t, next(), `"type":"message_delta"`)
	require.Contains(t, next(), `"type":"message_stop"`)
	require.Equal(t, "EOF", next())
}
