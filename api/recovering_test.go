package api

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A stream that waits because the model recovers says so in its comments, in every
// dialect that has comments, with the expected time if it is known.
func TestStreamsSayThatTheyWait(t *testing.T) {
	for _, d := range []struct{ path, body string }{
		{"/v1/chat/completions", `{` + user + `,"stream":true}`},
		{"/v1/completions", `{"prompt":"Hi","stream":true}`},
		{"/v1/messages", `{"max_tokens":5,` + user + `,"stream":true}`},
		{"/v1/responses", `{"input":"Hi","stream":true}`},
		{"/api/chat", `{` + user + `}`}, // lines, which have no comments
	} {
		t.Run(d.path, func(t *testing.T) {
			gate := make(chan struct{})
			// The engine is asked once for each tick.
			type state struct {
				reading time.Duration
				yes     bool
			}
			states := []state{{0, true}, {1500 * time.Millisecond, true}, {0, false}}
			asked := make(chan state, len(states))
			for _, s := range states {
				asked <- s
			}
			e := gated(gate)
			e.recovering = func() (time.Duration, bool) {
				s := <-asked
				return s.reading, s.yes
			}
			clock, answer := silentStream(t, e, d.path, d.body)
			for range states {
				clock.ticks <- time.Time{}
			}
			lines := <-answer
			close(gate)
			var comments []string
			for lines.Scan() {
				if text, ok := strings.CutPrefix(lines.Text(), ": "); ok {
					comments = append(comments, text)
				}
			}
			require.NoError(t, lines.Err())
			if strings.HasPrefix(d.path, "/api/") {
				require.Empty(t, comments)
				return
			}
			require.Equal(t, []string{
				"keep-alive: recovering: the ranks re-form the group; the answer continues afterwards",
				"keep-alive: recovering: the ranks re-form the group and read weights for up to 2s; the answer continues afterwards",
				"keep-alive",
			}, comments)
		})
	}
}
