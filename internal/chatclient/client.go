// Package chat is a conversation in the terminal with a server of OpenAI's Chat
// Completions: streaming, with the reasoning dimmed, Markdown, commands and history.
//
// Whatever comes from the server is text of a stranger: the client cleans it as it reads
// it, and Session's output lets nothing through but the sequences that set text, so a
// server cannot send commands to the terminal.
package chat

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"ringmaster/internal/network"
	"ringmaster/internal/safetext"
	"ringmaster/internal/usage"
)

// Bounds of what a server may send.
const (
	maxErrorBody = 64 << 10 // bytes of an error that are read
	maxModels    = 1 << 20  // bytes of the list of models
)

// Message is one of a conversation, as the API has it.
type Message struct {
	Role    string `json:"role"` // system, user or assistant
	Content string `json:"content"`
}

// Request is what is asked; Options are further fields of the body by their names.
type Request struct {
	Model    string
	Messages []Message
	Options  map[string]any
}

// Usage counts the tokens of an answer.
type Usage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Details    struct {
		Cached int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

// Event is a piece of an answer; Finish is in the last but for Usage.
type Event struct {
	Text, Reasoning string
	Finish          string
	Usage           *Usage
}

// Client speaks to one server. Its methods name the address and the cure in errors.
type Client struct {
	// Stall is the longest time in which the server sends nothing, not even that it
	// is still there; then the answer has failed. 0: DefaultStall.
	Stall time.Duration

	base string // without a slash at the end
	key  string
	http *http.Client
}

// DefaultStall is longer than the 15 seconds between two signs of life of this
// project's server.
const DefaultStall = 2 * time.Minute

// NewClient returns a client of the server at an address such as
// http://127.0.0.1:8080, with or without /v1. An empty key sends none. Errors are
// those of package usage.
func NewClient(address, key string) (*Client, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, usage.Errorf("--url is %q; expected an address such as http://127.0.0.1:8080", address)
	}
	u.Path = strings.TrimSuffix(strings.TrimRight(u.Path, "/"), "/v1")
	u.RawQuery, u.Fragment = "", ""
	if strings.ContainsAny(key, "\r\n") {
		return nil, usage.Errorf("--api-key has a line break; give the key alone")
	}
	dial := network.Dialer()
	dial.Timeout = 10 * time.Second
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, DialContext: dial.DialContext, TLSHandshakeTimeout: 10 * time.Second, IdleConnTimeout: time.Minute}
	return &Client{base: u.String(), key: key, http: &http.Client{Transport: transport}}, nil
}

// Address is the server's, without /v1.
func (c *Client) Address() string { return c.base }

// Models are the names of the server's models; at least one.
func (c *Client) Models(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	resp, err := c.do(ctx, http.MethodGet, "/v1/models", nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxModels)).Decode(&list); err != nil {
		return nil, fmt.Errorf("%s/v1/models is no list of models (%w); is this an OpenAI-compatible server?", c.base, safetext.Error(err, safetext.Evidence))
	}
	var names []string
	for _, m := range list.Data {
		names = append(names, safetext.Line(m.ID, safetext.Evidence))
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%s/v1/models lists no model; is this an OpenAI-compatible server?", c.base)
	}
	return names, nil
}

// do sends a request and returns the response if its status is 200.
func (c *Client) do(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.unreachable(ctx, err)
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		return nil, c.refused(resp)
	}
	return resp, nil
}

// unreachable is the error of a request without a response.
func (c *Client) unreachable(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	return fmt.Errorf("%s: %w; is the server running, and is --url its address?", c.base, safetext.Error(err, safetext.Evidence))
}

// refused is the error of a status other than 200.
func (c *Client) refused(resp *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody)) // as much as there is
	message := errorMessage(text)
	if message == "" {
		message = safetext.Line(resp.Status, safetext.Evidence)
	}
	switch resp.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		return usage.Errorf("%s: %s; give the key with --api-key or RINGMASTER_API_KEY", c.base, message)
	case http.StatusNotFound:
		return fmt.Errorf("%s: %s; is --url the address of an OpenAI-compatible server?", c.base, message)
	}
	if after := resp.Header.Get("Retry-After"); after != "" {
		message += "; try again in " + safetext.Line(after, 40) + " s"
	}
	return fmt.Errorf("%s: %s", c.base, message)
}

// errorMessage is the message of an error's JSON, "" if there is none.
func errorMessage(text []byte) string {
	var body struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal(text, &body) != nil {
		return ""
	}
	return safetext.Line(body.Error.Message, 2*safetext.Evidence)
}
