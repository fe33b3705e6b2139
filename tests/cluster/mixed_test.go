//go:build unix

package cluster

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/api/apitest"
	"ringmaster/internal/testenv"
	"ringmaster/tests/cluster/harness"
)

// ask sends a request and reads the answer.
func ask(ctx context.Context, c *harness.Cluster, path, body string, stream bool) (int, string, error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+c.HTTP+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	q.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(q)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, "", err
	}
	said, err := apitest.Said(string(answer), stream)
	return resp.StatusCode, said, err
}

// oneAndThree are two clusters with the same answers: one rank, and a group of three.
func oneAndThree(t *testing.T, flags ...string) (one, three *harness.Cluster) {
	return exactly(t, 1, flags...), exactly(t, 3, flags...)
}

// exactly is a cluster of so many ranks with exact sums.
func exactly(t *testing.T, size int, flags ...string) *harness.Cluster {
	b := newBed(t, harness.Options{Size: size})
	b.Flags = append([]string{"--reduce", "exact"}, flags...)
	b.form()
	return b.Cluster
}

// TestLimitsOnRanks: three ranks give each of 64 requests of all dialects, sent at once,
// the answer that one rank gives it alone, beside clients that disconnect or read nothing;
// no answer has the marker of another; bodies of 32 MiB with 200 tools are answered or
// refused in their dialect; and all of it leaves the group as it was.
func TestLimitsOnRanks(t *testing.T) {
	testenv.Need(t, testenv.Full, "64 streams and bodies of 32 MiB on three ranks")
	t.Parallel()
	const clients, leaving, stalled, answer = 64, 16, 8, 24
	one, three := oneAndThree(t, "--ctx", "4096", "--queue", "200")
	ctx := testenv.Within(t, 5*hangLimit)
	want := map[int]string{}
	for i := range clients {
		q := apitest.NewMixed(i, answer)
		status, said, err := ask(ctx, one, q.Path, q.Body, q.Stream)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, status, "%s: %s", q.Body, said)
		want[i] = said
	}
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			q := apitest.NewMixed(i, answer)
			status, said, err := ask(ctx, three, q.Path, q.Body, q.Stream)
			if err != nil || said != want[i] {
				t.Errorf("%s %s\none rank alone: %s\nthree beside others: %d %s %v", q.Path, q.Body, want[i], status, said, err)
			}
			for _, mark := range apitest.MarkerPattern.FindAllString(said, -1) {
				if mark != q.Marker {
					t.Errorf("%s in the answer to %s", mark, q.Body)
				}
			}
		})
	}
	for i := range leaving {
		all.Go(func() {
			left, leave := context.WithTimeout(ctx, time.Duration(i*i)*10*time.Millisecond)
			defer leave()
			q := apitest.NewMixed(1000+i, 500)
			_, _, _ = ask(left, three, q.Path, q.Body, q.Stream)
		})
	}
	for i := range stalled {
		c, err := net.Dial("tcp", three.HTTP)
		require.NoError(t, err)
		defer c.Close()
		q := apitest.NewMixed(2000+i, 500)
		_, err = fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", q.Path, three.HTTP, len(q.Body), q.Body)
		require.NoError(t, err)
	}
	all.Wait()
	for path, body := range apitest.Large(32<<20, false) {
		status, said, err := ask(ctx, three, path, body, false)
		require.NoError(t, err)
		if path == "/api/chat" { // the prompt has its tools
			require.Equal(t, http.StatusBadRequest, status, "%.300s", said)
			require.Contains(t, said, "does not fit the context")
		} else {
			require.Equal(t, http.StatusOK, status, "%s: %.300s", path, said)
		}
	}
	require.NoError(t, harness.Until(ctx, "all answers to end", func() (bool, string) {
		running, err := three.Client.Metric(ctx, "ringmaster_engine_active")
		return err == nil && running == 0, fmt.Sprint(running, err)
	}))
	for i := range 6 {
		q := apitest.NewMixed(i, answer)
		_, said, err := ask(ctx, three, q.Path, q.Body, q.Stream)
		require.NoError(t, err)
		require.Equal(t, want[i], said)
	}
	require.NotContains(t, three.Logs(), "level=ERROR")
}
