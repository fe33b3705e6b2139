package harness

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Dialer opens connections, possibly from another network namespace.
type Dialer func(ctx context.Context, network, addr string) (net.Conn, error)

// Client sends requests to one server.
type Client struct {
	base string
	http *http.Client
}

// NewClient returns a client of the server at an address. dial may be nil.
// Connections are not reused, so that each request shows the current state of the
// server.
func NewClient(addr string, dial Dialer) *Client {
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	return &Client{base: "http://" + addr, http: &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}}
}

// Token is one token of an answer. Its name is its text, or for a control token
// the name in the vocabulary.
type Token struct {
	Name    string
	Logprob float64
	Top     map[string]float64 // most likely alternatives, if requested
}

// Equal compares names, and with bits also the log-probabilities, which must then be
// identical.
func (t Token) Equal(o Token, bits bool) bool {
	return t.Name == o.Name && (!bits || t.Logprob == o.Logprob && maps.Equal(t.Top, o.Top))
}

// APIError is OpenAI's error object.
type APIError struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Code    *string `json:"code"`
}

// Answer is the response to a request.
type Answer struct {
	Status int       // HTTP status
	Tokens []Token   // in order, including those before an error
	Prompt []Token   // of the prompt, with Request.Echo
	Finish string    // "length", "stop", or "" if it was interrupted
	Err    *APIError // of the response or of an event of the stream
	Done   bool      // the stream ended properly
	Ended  time.Time
}

// Request asks for a greedy completion of a prompt.
type Request struct {
	Prompt    []int32
	MaxTokens int
	Top       int  // number of alternatives to return
	Echo      bool // also return the log-probabilities of the prompt
	// OnToken is called with the number of tokens received so far.
	OnToken func(n int)
}

// Complete streams the answer to a request. An error of the server is part of the
// answer; err means that there is no proper answer: no connection, an interrupted
// stream, invalid JSON.
func (c *Client) Complete(ctx context.Context, r Request) (*Answer, error) {
	body, err := json.Marshal(map[string]any{
		"prompt": r.Prompt, "max_tokens": r.MaxTokens, "temperature": 0, "ignore_eos": true,
		"logprobs": r.Top, "stream": true, "echo": r.Echo,
	})
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+"/v1/completions", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	a := &Answer{}
	resp, err := c.http.Do(req)
	if err != nil {
		a.Ended = time.Now()
		return a, err
	}
	defer resp.Body.Close()
	a.Status = resp.StatusCode
	err = a.read(resp, r)
	a.Ended = time.Now()
	return a, err
}

// chunk is an event of the stream, or an error object.
type chunk struct {
	Error   *APIError `json:"error"`
	Choices []struct {
		FinishReason *string `json:"finish_reason"`
		Logprobs     *struct {
			Tokens        []string             `json:"tokens"`
			TokenLogprobs []*float64           `json:"token_logprobs"`
			TopLogprobs   []map[string]float64 `json:"top_logprobs"`
		} `json:"logprobs"`
	} `json:"choices"`
}

func (a *Answer) read(resp *http.Response, r Request) error {
	if resp.StatusCode != http.StatusOK {
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			return err
		}
		var c chunk
		if err := json.Unmarshal(text, &c); err != nil || c.Error == nil {
			return fmt.Errorf("status %d without an error object: %q", resp.StatusCode, text)
		}
		a.Err, a.Done = c.Error, true
		return nil
	}
	lines := bufio.NewReader(resp.Body)
	for {
		line, err := lines.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("the stream ended after %d tokens with neither [DONE] nor an error", len(a.Tokens))
		}
		if err != nil {
			return fmt.Errorf("the stream was interrupted after %d tokens: %w", len(a.Tokens), err)
		}
		data, ok := strings.CutPrefix(strings.TrimSpace(line), "data: ")
		if !ok {
			continue
		}
		if data == "[DONE]" {
			a.Done = true
			return nil
		}
		var c chunk
		if err := json.Unmarshal([]byte(data), &c); err != nil {
			return fmt.Errorf("event %q: %w", data, err)
		}
		if c.Error != nil {
			a.Err, a.Done = c.Error, true
			return nil
		}
		a.add(c, r)
	}
}

// add appends the tokens of an event. The tokens of an echoed prompt come first.
func (a *Answer) add(c chunk, r Request) {
	for _, choice := range c.Choices {
		if choice.FinishReason != nil {
			a.Finish = *choice.FinishReason
		}
		l := choice.Logprobs
		if l == nil {
			continue
		}
		for i, name := range l.Tokens {
			t := Token{Name: name}
			if l.TokenLogprobs[i] != nil {
				t.Logprob = *l.TokenLogprobs[i]
			}
			if i < len(l.TopLogprobs) {
				t.Top = l.TopLogprobs[i]
			}
			if r.Echo && len(a.Prompt) < len(r.Prompt) {
				a.Prompt = append(a.Prompt, t)
				continue
			}
			a.Tokens = append(a.Tokens, t)
			if r.OnToken != nil {
				r.OnToken(len(a.Tokens))
			}
		}
	}
}

// Ready queries /readyz: whether the server is ready, and the response text.
func (c *Client) Ready(ctx context.Context) (bool, string) {
	text, status, err := c.get(ctx, "/readyz")
	if err != nil {
		return false, err.Error()
	}
	return status == http.StatusOK, string(text)
}

// Metric returns a value of /metrics. The name includes the labels, if any.
func (c *Client) Metric(ctx context.Context, name string) (float64, error) {
	text, err := c.Metrics(ctx)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), name+" "); ok {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, fmt.Errorf("/metrics has no %s", name)
}

// UntilRanks waits until the server is ready and its group has so many ranks.
func (c *Client) UntilRanks(ctx context.Context, ranks int) error {
	return Until(ctx, "the group to have its ranks", func() (bool, string) {
		if ok, why := c.Ready(ctx); !ok {
			return false, why
		}
		n, err := c.Metric(ctx, "ringmaster_group_ranks")
		return err == nil && int(n) == ranks, ""
	})
}

// Metrics returns the text of /metrics.
func (c *Client) Metrics(ctx context.Context) (string, error) {
	text, status, err := c.get(ctx, "/metrics")
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("/metrics: status %d", status)
	}
	return string(text), err
}

func (c *Client) get(ctx context.Context, path string) ([]byte, int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+path, nil)
	if err != nil {
		return nil, 0, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, 0, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return text, resp.StatusCode, err
}
