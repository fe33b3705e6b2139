package api

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/api/apitest"
	"ringmaster/engine"
	"ringmaster/engine/enginetest"
)

// echo answers with the marker of its question: as text, as reasoning and as a call, in
// the words that it has not said yet.
func echo(history []int32) string {
	text := withControls(history)
	at := max(strings.LastIndex(text, "<｜User｜>"), 0)
	marks := apitest.MarkerPattern.FindAllString(text[at:], -1)
	if len(marks) == 0 {
		return "nothing"
	}
	mark := marks[0]
	switch {
	case strings.HasSuffix(text, "<think>"):
		return "I know " + mark + ".</think>It is " + mark + "."
	case strings.Contains(text, "weather") && strings.HasSuffix(text, "</think>"):
		return "I call " + mark + ".\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"weather\">\n<｜DSML｜parameter name=\"place\" string=\"true\">" + mark + "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>"
	}
	return mark + " and " + mark
}

// TestManyStreams: 64 requests at once, of all dialects, with tools, schemas and
// reasoning, on connections without buffers, beside clients that disconnect at any moment
// or stop reading, each get the answer that they get alone. The model says the marker of
// its question, or depends on every token of it. No answer has the marker of another, and
// nothing is left over. In virtual time.
func TestManyStreams(t *testing.T) {
	for name, say := range map[string]func([]int32) string{"echo": echo, "hash": nil} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { manyStreams(t, say) })
		})
	}
}

func manyStreams(t *testing.T, say func([]int32) string) {
	const clients, leaving, stalled, answer = 64, 24, 12, 300
	m := enginetest.NewModel(int(apitest.Size), enginetest.Options{Say: say})
	e, err := engine.New(m, apitest.Tokenizer{}, engine.Options{QueueLength: 200, CacheEntries: 4})
	require.NoError(t, err)
	ids := 0
	var mu sync.Mutex
	log := &lockedBuffer{}
	s := newServer(Config{Engine: FromEngine(e), Tokenizer: apitest.Tokenizer{}, Model: Model{ID: "tiny", ContextLength: 4096},
		Log: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn})),
		NewID: func() string {
			mu.Lock()
			defer mu.Unlock()
			ids++
			return fmt.Sprintf("%016x", ids)
		}})
	l := newPipeListener()
	web := NewServer(s.handler(), ServerOptions{})
	served := make(chan error, 1)
	go func() { served <- web.Serve(l) }()
	dial := &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) { return l.dial(), nil }}
	open := func(ctx context.Context, q apitest.Mixed) (*http.Response, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://x"+q.Path, strings.NewReader(q.Body))
		if err != nil {
			return nil, err
		}
		r.Header.Set("Content-Type", "application/json")
		return dial.RoundTrip(r)
	}
	ask := func(q apitest.Mixed) (string, error) {
		resp, err := open(t.Context(), q)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			return "", fmt.Errorf("%d %.300s: %w", resp.StatusCode, text, err)
		}
		return apitest.Said(string(text), q.Stream)
	}
	want, marked := map[int]string{}, 0
	for i := range clients {
		q := apitest.NewMixed(i, answer)
		want[i], err = ask(q)
		require.NoError(t, err, q.Body)
		if strings.Contains(want[i], q.Marker) {
			marked++
		}
	}
	if say != nil {
		require.Greater(t, marked, clients/2)
	}
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			q := apitest.NewMixed(i, answer)
			got, err := ask(q)
			if err != nil || got != want[i] {
				t.Errorf("%s %s\nalone: %s\nbeside others: %s %v", q.Path, q.Body, want[i], got, err)
			}
			for _, mark := range apitest.MarkerPattern.FindAllString(got, -1) {
				if mark != q.Marker {
					t.Errorf("%s: %s in the answer to %s", q.Path, mark, q.Marker)
				}
			}
		})
	}
	for i := range leaving { // after no, one, two … bytes of the answer
		all.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			q := apitest.NewMixed(1000+i, answer)
			if i%4 == 0 {
				time.AfterFunc(time.Duration(i)*time.Microsecond, cancel)
			}
			if resp, err := open(ctx, q); err == nil {
				_, _ = io.CopyN(io.Discard, resp.Body, int64(i*i))
				cancel()
				_ = resp.Body.Close()
			}
		})
	}
	var unread []net.Conn
	for i := range stalled { // these read nothing, or only the first bytes
		c, q := l.dial(), apitest.NewMixed(2000+i, answer)
		unread = append(unread, c)
		_, err := fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", q.Path, len(q.Body), q.Body)
		require.NoError(t, err)
		if i%2 == 0 {
			all.Go(func() { _, _ = io.CopyN(io.Discard, c, 20) })
		}
	}
	began := time.Now()
	all.Wait()
	require.Less(t, time.Since(began), time.Minute, "no one waits for stalled readers longer than it takes to end them")
	<-time.After(5 * time.Minute) // their writes have ended
	synctest.Wait()
	stats := e.Stats()
	require.Zero(t, stats.Active, "%+v", stats)
	require.Zero(t, stats.Queued)
	require.LessOrEqual(t, m.Known(), 4, "no more than the prefix cache keeps")
	used, _ := s.bodies.usage()
	require.Zero(t, used)
	for i := range 10 { // and the answers are the same as before
		got, err := ask(apitest.NewMixed(i, answer))
		require.NoError(t, err)
		require.Equal(t, want[i], got)
	}
	for _, c := range unread {
		rest, _ := io.ReadAll(c) // what the server had written, and no more
		require.Less(t, len(rest), 64<<10)
		_ = c.Close()
	}
	require.NoError(t, web.Shutdown(t.Context()))
	require.NoError(t, <-served)
	require.NoError(t, e.Close(t.Context()))
	require.Empty(t, m.Violations())
	require.NotContains(t, log.String(), "level=ERROR", log.String())
	for _, mark := range apitest.MarkerPattern.FindAllString(log.String(), -1) {
		require.Fail(t, "a text of a client in the log", mark)
	}
}
