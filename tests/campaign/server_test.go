//go:build unix

package campaign

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"ringmaster/internal/testenv"
	"ringmaster/tests/cluster/harness"
)

const apiKey = "sk-campaign"

// patience bounds every single wait; none gets near it but on a host that is
// very busy.
const patience = time.Minute

// server is a running program that serves its built-in model.
type server struct {
	*harness.Process
	addr string // host:port
}

// serve builds the program and starts it, by a shell command if before is not
// empty.
func serve(t *testing.T, before string, flags ...string) *server {
	t.Helper()
	binary := testenv.Program(t)
	args := append([]string{"sh", "-c", before + ` exec "$0" "$@"`, binary, "serve", "--threads", "1"}, flags...)
	p, addr := harness.Serve(t, args...)
	return &server{p, addr}
}

// client makes each request on a connection of its own, so that none stays open.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}

// request makes a request with the key.
func (s *server) request(ctx context.Context, method, path, body string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, "http://"+s.addr+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+apiKey)
	r.Header.Set("Content-Type", "application/json")
	return client.Do(r)
}

// metrics reads the values of metrics that have no label.
func (s *server) metrics(ctx context.Context) (map[string]float64, error) {
	resp, err := s.request(ctx, "GET", "/metrics", "")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("/metrics: %s", resp.Status)
	}
	out := map[string]float64{}
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		name, value, ok := strings.Cut(lines.Text(), " ")
		if v, err := strconv.ParseFloat(value, 64); ok && err == nil {
			out[name] = v
		}
	}
	return out, nil
}
