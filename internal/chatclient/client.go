// Package chatclient holds a conversation in the terminal with a server of OpenAI's Chat
// Completions: streaming, with dimmed reasoning, Markdown, commands and history.
// NewClient names the server, and Talk holds the conversation on the streams of a
// terminal.
//
// Text from the server is untrusted: the client cleans it on arrival, and Session's
// output passes only the escape sequences that style text, so that a server cannot send
// commands to the terminal.
package chatclient

import (
	"bytes"
	"cmp"
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
	maxErrorBody = 64 << 10 // most bytes read of an error
	maxModels    = 1 << 20  // bytes of the list of models
)

// Message is one message of a conversation, in the API's form.
type Message struct {
	Role    string `json:"role"` // system, user or assistant
	Content string `json:"content"`
}

// Request is a request for an answer; Options are further fields of the body by their
// names.
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

// Timings are the times that the server measured.
type Timings struct {
	Predicted int     `json:"predicted_n"`  // tokens of the answer
	Decode    float64 `json:"predicted_ms"` // since its first token
}

// Event is a piece of an answer. Finish is in the last one before Usage.
type Event struct {
	Text, Reasoning string
	Finish          string
	Usage           *Usage
	Timings         *Timings // nil: the server sends none
}

// Client talks to one server. The errors of its methods name the address and the cure.
type Client struct {
	// Stall is how long the server may send nothing, not even a keep-alive, before the
	// answer has failed. 0: DefaultStall.
	Stall time.Duration

	base string // without a slash at the end
	key  string
	http *http.Client
}

// DefaultStall is longer than the 10 seconds of silence after which this project's server
// sends its first keep-alive.
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

// Address returns the server's address, without /v1.
func (c *Client) Address() string { return c.base }

// Models returns the names of the server's models; at least one.
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
		return nil, fmt.Errorf("%s/v1/models is not a list of models (%w); is this an OpenAI-compatible server?", c.base, safetext.Error(err, safetext.Evidence))
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

// unreachable returns the error of a request without a response.
func (c *Client) unreachable(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	return fmt.Errorf("%s: %w; is the server running, and is --url its address?", c.base, safetext.Error(err, safetext.Evidence))
}

// refused returns the error of a status other than 200.
func (c *Client) refused(resp *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody)) // as much as can be read
	message := cmp.Or(errorMessage(text), safetext.Line(resp.Status, safetext.Evidence))
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

// errorMessage returns the message of an error's JSON, "" if there is none.
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
