package api

import (
	"bufio"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/engine"
)

// gated is an engine that answers only when gate lets it.
func gated(gate <-chan struct{}) *fakeEngine {
	return &fakeEngine{script: func(_ int, r engine.Request) ([]act, error) {
		acts := answerActs(len(r.Prompt), "Hi")
		acts[0].wait = gate
		return acts, nil
	}}
}

// silentStream asks for a stream from a server with a clock that the test moves. Its
// lines come when the stream has begun.
func silentStream(t *testing.T, e *fakeEngine, path, body string) (*fakeClock, <-chan *bufio.Scanner) {
	c := testConfig(e)
	clock := newClock()
	c.Clock = clock
	url := serve(t, c)
	answer := make(chan *bufio.Scanner)
	go func() {
		resp, err := post(t, t.Context(), url+path, body)
		if err != nil {
			panic(err)
		}
		answer <- bufio.NewScanner(resp.Body)
	}()
	return clock, answer
}

// nextLine returns a function that reads the next comment or data of an event stream.
func nextLine(lines *bufio.Scanner) func() string {
	return func() string {
		for lines.Scan() {
			if text := lines.Text(); text != "" && !strings.HasPrefix(text, "event: ") {
				return text
			}
		}
		return "EOF"
	}
}

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
	clock, answer := silentStream(t, e, "/v1/messages", `{"max_tokens":5,`+user+`,"stream":true}`)
	clock.ticks <- time.Time{}
	next := nextLine(<-answer)
	require.Contains(t, next(), `"type":"message_start"`)
	require.Equal(t, ": keep-alive", next())
	require.Equal(t, `data: {"type":"ping"}`, next())
	require.Equal(t, []time.Duration{10 * time.Second, 2 * time.Second}, clock.set(), "the first tick comes late")
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

// A silent stream of the Responses API has an event at every tick, because clients count
// comments as silence.
func TestResponsesTicks(t *testing.T) {
	gate := make(chan struct{})
	clock, answer := silentStream(t, gated(gate), "/v1/responses",
		`{"input":"Hi","instructions":"Be brief.","stream":true`+responsesTools+`}`)
	clock.ticks <- time.Time{}
	next := nextLine(<-answer)
	require.Contains(t, next(), `"type":"response.created","sequence_number":0`)
	for _, number := range []string{"1", "2"} { // of the beginning, and of the tick
		line := next()
		if strings.HasPrefix(line, ":") {
			line = next()
		}
		require.Contains(t, line, `"type":"response.in_progress","sequence_number":`+number)
		require.Equal(t, number == "1", strings.Contains(line, "Be brief.") && strings.Contains(line, `"name":"weather"`), "a tick does not repeat what is long")
	}
	clock.ticks <- time.Time{}
	require.Equal(t, ": keep-alive", next())
	require.Contains(t, next(), `"type":"response.in_progress","sequence_number":3`)
	close(gate)
	require.Contains(t, next(), `"type":"response.output_item.added","sequence_number":4`)
}
