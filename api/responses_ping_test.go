package api

import (
	"bufio"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/engine"
)

// A silent stream of the Responses API has an event at every tick, because clients count
// comments as silence.
func TestResponsesTicks(t *testing.T) {
	gate := make(chan struct{})
	e := &fakeEngine{script: func(_ int, r engine.Request) ([]act, error) {
		acts := answerActs(len(r.Prompt), "Hi")
		acts[0].wait = gate
		return acts, nil
	}}
	c := testConfig(e)
	clock := newClock()
	c.Clock = clock
	url := serve(t, c)
	done := make(chan *bufio.Scanner)
	go func() {
		resp, err := post(t, t.Context(), url+"/v1/responses", `{"input":"Hi","instructions":"Be brief.","stream":true`+responsesTools+`}`)
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
