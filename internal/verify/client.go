// Package verify examines a running server: whether it repeats itself, whether concurrent
// requests change its answers, whether it answers as another server or a record of one
// does, token by token with log-probabilities, and how fast it is. API.Ask examines
// through the API, and Examination through the leader of a group.
package verify

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

	"ringmaster/internal/safetext"
	"ringmaster/internal/usage"
)

// Bounds of what a server may send.
const (
	maxLine  = 64 << 20 // bytes of one event; that of an echoed prompt is long
	maxError = 64 << 10 // most bytes read of an error
)

// topLogprobs is how many alternatives of each token are compared.
const topLogprobs = 5

// Token is a token of a prompt or an answer. Logprob is 0 for the first token of a
// prompt, which has none.
type Token struct {
	Text    string             `json:"text"`
	Logprob float64            `json:"logprob"`
	Top     map[string]float64 `json:"top,omitempty"`
}

// Answer is a server's answer to a prompt at temperature 0.
type Answer struct {
	Tokens []Token `json:"tokens"` // of the prompt and the answer
	Prompt int     `json:"prompt"` // how many of them are the prompt's

	first, last time.Duration // of the tokens of the answer, since the request
	events      int
}

// Server is a server of OpenAI's text completions.
type Server struct {
	Base, Key string
	Limit     time.Duration // for one request
	http      *http.Client

	Model       string // set by Look
	Fingerprint string // system_fingerprint of the last answer
}

// NewServer returns the server at an address. Errors are those of package usage and name
// the flag.
func NewServer(flag, address, key string, limit time.Duration) (*Server, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, usage.Errorf("--%s is %q; expected an address such as http://127.0.0.1:8080", flag, address)
	}
	u.Path = strings.TrimSuffix(strings.TrimRight(u.Path, "/"), "/v1")
	return &Server{Base: u.String(), Key: key, Limit: limit, http: &http.Client{}}, nil
}

// Look checks that the server is ready, and asks for its model.
func (s *Server) Look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, min(s.Limit, 30*time.Second))
	defer cancel()
	resp, err := s.do(ctx, http.MethodGet, "/v1/models", nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxError)).Decode(&list); err != nil || len(list.Data) == 0 {
		return fmt.Errorf("%s/v1/models lists no model; is this an OpenAI-compatible server?", s.Base)
	}
	s.Model = safetext.Line(list.Data[0].ID, safetext.Evidence)
	ready, err := s.do(ctx, http.MethodGet, "/readyz", nil)
	if err != nil {
		return fmt.Errorf("not ready: %w", err)
	}
	return ready.Body.Close()
}

func (s *Server) do(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, s.Base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if s.Key != "" {
		req.Header.Set("Authorization", "Bearer "+s.Key)
	}
	resp, err := s.http.Do(req)
	if err != nil {
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err
		}
		return nil, fmt.Errorf("%s: %w; is the server running there?", s.Base, safetext.Error(err, safetext.Evidence))
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxError)) // as much as can be read
	if resp.StatusCode == http.StatusUnauthorized {
		return nil, usage.Errorf("%s wants a key: give it with --api-key", s.Base)
	}
	return nil, fmt.Errorf("%s%s: %s: %q", s.Base, path, safetext.Line(resp.Status, safetext.Evidence), safetext.Line(string(text), safetext.Evidence))
}

// chunk is one event of the stream of a text completion.
type chunk struct {
	Fingerprint string `json:"system_fingerprint"`
	Choices     []struct {
		Logprobs *struct {
			Tokens        []string             `json:"tokens"`
			TokenLogprobs []*float64           `json:"token_logprobs"`
			TopLogprobs   []map[string]float64 `json:"top_logprobs"`
		} `json:"logprobs"`
	} `json:"choices"`
	Usage *struct {
		Completion int `json:"completion_tokens"`
	} `json:"usage"`
	Error json.RawMessage `json:"error"`
}

// Ask evaluates a prompt and continues it by so many tokens, at temperature 0. Fields are
// further ones of the request.
func (s *Server) Ask(ctx context.Context, prompt string, tokens int, fields map[string]any) (*Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, s.Limit)
	defer cancel()
	request := map[string]any{"model": s.Model, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "logprobs": topLogprobs,
		"echo": true, "ignore_eos": true, "stream": true, "stream_options": map[string]any{"include_usage": true}}
	maps.Copy(request, fields)
	body, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	resp, err := s.do(ctx, http.MethodPost, "/v1/completions", body)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	a := &Answer{}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(make([]byte, 64<<10), maxLine)
	done := false
	for lines.Scan() && !done {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if done = data == "[DONE]"; !ok || done {
			continue
		}
		if err := s.take(a, data, begun); err != nil {
			return nil, err
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: the stream broke off: %w", s.Base, err)
	}
	if !done {
		return nil, fmt.Errorf("%s: the stream ended before the answer", s.Base)
	}
	if got := len(a.Tokens) - a.Prompt; a.Prompt < 1 || got != tokens {
		return nil, fmt.Errorf("%s: %d tokens of the prompt and %d of the answer (requested: %d); does it know echo, logprobs and ignore_eos?", s.Base, a.Prompt, got, tokens)
	}
	return a, nil
}

// take adds an event to an answer.
func (s *Server) take(a *Answer, data string, begun time.Time) error {
	var c chunk
	if err := json.Unmarshal([]byte(data), &c); err != nil {
		return fmt.Errorf("%s: an event is not JSON: %w", s.Base, safetext.Error(err, safetext.Evidence))
	}
	if len(c.Error) > 0 && string(c.Error) != "null" {
		return fmt.Errorf("%s: the answer failed: %s", s.Base, safetext.Line(string(c.Error), 2*safetext.Evidence))
	}
	if c.Fingerprint != "" {
		s.Fingerprint = safetext.Line(c.Fingerprint, safetext.Evidence)
	}
	if c.Usage != nil {
		// Tokens that the server put before the prompt are counted, but not echoed.
		a.Prompt = len(a.Tokens) - c.Usage.Completion
	}
	if len(c.Choices) == 0 || c.Choices[0].Logprobs == nil {
		return nil
	}
	l := c.Choices[0].Logprobs
	if len(l.TokenLogprobs) != len(l.Tokens) || len(l.TopLogprobs) != len(l.Tokens) {
		return fmt.Errorf("%s: an event has %d tokens and %d log-probabilities", s.Base, len(l.Tokens), len(l.TokenLogprobs))
	}
	a.last = time.Since(begun)
	if a.events == 0 {
		a.first = a.last
	}
	a.events++
	for i, text := range l.Tokens {
		t := Token{Text: text, Top: l.TopLogprobs[i]}
		if p := l.TokenLogprobs[i]; p != nil {
			t.Logprob = *p
		}
		a.Tokens = append(a.Tokens, t)
	}
	return nil
}
