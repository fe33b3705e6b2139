package progress

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Without a terminal a pull writes a line now and then, with rate and time left; on a
// terminal it shows a bar.
func TestReport(t *testing.T) {
	var out strings.Builder
	now := time.Unix(0, 0)
	r := &Report{w: &out, now: func() time.Time { return now }}
	r.Begin("fetch", 10<<30, 2<<30)
	for range 4 {
		now = now.Add(10 * time.Second)
		r.Add(1 << 30)
	}
	r.Say("host: broken pipe; again in 1s")
	r.Add(-1 << 30)
	r.End()
	require.Equal(t, []string{
		"2.00 GiB of 10.00 GiB already present",
		"fetching: 5.00 GiB of 10.00 GiB (50%), 102.4 MiB/s, 50s left",
		"host: broken pipe; again in 1s",
		"fetching: 5.00 GiB of 10.00 GiB (50%), 76.8 MiB/s, 1m7s left",
		"",
	}, strings.Split(out.String(), "\n"))

	out.Reset()
	r = &Report{w: &out, now: time.Now, terminal: true}
	r.Begin("check", 1000, 0)
	r.Add(400)
	r.Add(-100)
	r.Add(700)
	r.End()
	require.Contains(t, out.String(), "checking SHA-256")
	require.Contains(t, out.String(), "100%")
	require.True(t, strings.HasSuffix(out.String(), "\n"))
}
