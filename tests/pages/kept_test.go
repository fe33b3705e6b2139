package pages

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestKept: no word of a conversation is lost, whatever happens to the server, the page or
// another tab.
func TestKept(t *testing.T) { playHeld(t, "kept.mjs") }

// TestFeatures: what the chat page offers beside the conversation itself.
func TestFeatures(t *testing.T) { playHeld(t, "features.mjs") }

// playHeld runs a script that kills and holds the server.
func playHeld(t *testing.T, script string) {
	chromium(t)
	s := newServer(t, "")
	do := func(words string) {
		switch verb, n, _ := strings.Cut(words, " "); verb {
		case "kill":
			s.kill()
		case "start":
			s.start()
		case "hold": // after some more steps
			steps, err := strconv.Atoi(n)
			require.NoError(t, err, words)
			s.hold(steps)
		case "quiet": // waits until the server has noticed that its requests were abandoned
			require.Eventually(t, func() bool { return s.requests.Load() == 0 }, time.Minute, 10*time.Millisecond)
		default:
			require.Fail(t, "unknown request", words)
		}
	}
	play(t, script, "http://"+s.address, do, picturesEnv(t))
}
