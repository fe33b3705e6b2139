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

// Dialer opens connections, perhaps from another network namespace.
type Dialer func(ctx context.Context, network, addr string) (net.Conn, error)

// Client asks one server.
type Client struct {
	base string
	http *http.Client
}

// NewClient asks the server at an address. dial may be nil. No connection is
// kept, so that each request tells the state of the server.
func NewClient(addr string, dial Dialer) *Client {
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	return &Client{base: "http://" + addr, http: &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}}
}

// Token is one token of an answer. Its name is its text, or what it is called.
type Token struct {
	Name    string
	Logprob float64
	Top     map[string]float64 // likeliest alternatives, if asked for
}

// Equal compares names, and with bits also the log probabilities, which must
// then be the same numbers.
func (t Token) Equal(o Token, bits bool) bool {
	return t.Name == o.Name && (!bits || t.Logprob == o.Logprob && maps.Equal(t.Top, o.Top))
}

// APIError is OpenAI's error object.
type APIError struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Code    *string `json:"code"`
}

// Answer is what came of a request.
type Answer struct {
	Status int       // of HTTP
	Tokens []Token   // in order, those before an error too
	Prompt []Token   // of the prompt, with Request.Echo
	Finish string    // "length", "stop", or "" when it broke off
	Err    *APIError // of the answer or of an event
	Done   bool      // the stream ended as it should
	Ended  time.Time
}

// Request asks for the likeliest tokens after a prompt.
type Request struct {
	Prompt    []int32
	MaxTokens int
	Top       int  // alternatives to tell
	Echo      bool // tell the log probabilities of the prompt too
	// OnToken is called with the number of tokens that have come.
	OnToken func(n int)
}

// Complete streams the answer to a request. An error of the server is part of
// the answer; err is for what is no answer at all: no connection, a stream
// that breaks off, JSON that cannot be read.
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
			return fmt.Errorf("the stream broke off after %d tokens: %w", len(a.Tokens), err)
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

// add takes the tokens of an event. The tokens of an echoed prompt come first.
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

// Ready asks /readyz: whether it says so, and the reason if not.
func (c *Client) Ready(ctx context.Context) (bool, string) {
	text, status, err := c.get(ctx, "/readyz")
	if err != nil {
		return false, err.Error()
	}
	return status == http.StatusOK, string(text)
}

// Metric is a value of /metrics by its name, with its labels if it has some.
func (c *Client) Metric(ctx context.Context, name string) (float64, error) {
	text, status, err := c.get(ctx, "/metrics")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), name+" "); ok {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, fmt.Errorf("/metrics (status %d) has no %s", status, name)
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
