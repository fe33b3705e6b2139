//go:build unix

// Package scaling runs several groups behind a real HAProxy with the configuration of
// packaging/scaling: conversations stay with their group, and outlive it.
package scaling

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
	"ringmaster/tests/cluster/harness"
)

// patience bounds every wait; none gets near it.
const patience = 2 * time.Minute

const config = "../../packaging/scaling/haproxy.cfg"

// bed is two groups of two ranks behind HAProxy.
type bed struct {
	t      *testing.T
	ctx    context.Context
	groups []*harness.Cluster
	addr   string // of HAProxy
}

func newBed(t *testing.T) *bed {
	t.Helper()
	ctx := testenv.Within(t, patience)
	b := &bed{t: t, ctx: ctx}
	program := testenv.Program(t)
	for range 2 {
		g, err := harness.NewCluster(harness.Options{Program: program, Size: 2, Flags: []string{"--cache-entries", "32", "--ctx", "1024"}})
		require.NoError(t, err)
		t.Cleanup(g.Close)
		require.NoError(t, g.Start(0, 1))
		b.groups = append(b.groups, g)
	}
	for _, g := range b.groups {
		require.NoError(t, g.UntilReady(ctx), g.Logs())
	}
	b.proxy(b.groups[0].HTTP, b.groups[1].HTTP, "/v1/models")
	return b
}

// proxy starts HAProxy before two groups and waits until it passes a request.
func (b *bed) proxy(groupA, groupB, path string) *harness.Process {
	b.t.Helper()
	var err error
	b.addr, err = testenv.FreeAddr("127.0.0.1")
	require.NoError(b.t, err)
	env := []string{"LISTEN=" + b.addr, "GROUP_A=" + groupA, "GROUP_B=" + groupB}
	proxy := harness.Run(b.t, env, "haproxy", "-db", "-f", config)
	require.NoError(b.t, harness.Until(b.ctx, "HAProxy to pass a request", func() (bool, string) {
		require.True(b.t, proxy.Running(), proxy.Log.String())
		status, body, err := b.get(path)
		return status == http.StatusOK, fmt.Sprint(status, body, err)
	}))
	return proxy
}

func (b *bed) get(path string) (int, string, error) {
	req, err := http.NewRequestWithContext(b.ctx, http.MethodGet, "http://"+b.addr+path, nil)
	if err != nil {
		return 0, "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

// message is one of a conversation; parts says that its content is a list.
type message map[string]any

func said(role, text string, parts bool) message {
	if parts {
		return message{"role": role, "content": []any{map[string]any{"type": "text", "text": text}}}
	}
	return message{"role": role, "content": text}
}

// conversation is one client's.
type conversation struct {
	path, system string
	header       http.Header
	extra        map[string]any // other members of the body
	parts        bool
	messages     []message
	// long says that its bodies are beyond HAProxy's buffer. HAProxy doesn't send such a
	// request to another group, so its client has to.
	long bool
}

// turn is what one request brought.
type turn struct {
	prompt, cached int
}

// ask sends the next question of a conversation.
func (b *bed) ask(c *conversation, question string) (turn, error) {
	c.messages = append(c.messages, said("user", question, c.parts))
	body := map[string]any{"model": "any", "temperature": 0, "max_tokens": 24}
	messages := c.messages
	if c.system != "" && c.path == "/v1/messages" {
		body["system"] = c.system
	} else if c.system != "" {
		messages = append([]message{said("system", c.system, c.parts)}, messages...)
	}
	body["messages"] = messages
	maps.Copy(body, c.extra)
	text, err := json.Marshal(body)
	if err != nil {
		return turn{}, err
	}
	req, err := http.NewRequestWithContext(b.ctx, http.MethodPost, "http://"+b.addr+c.path, bytes.NewReader(text))
	if err != nil {
		return turn{}, err
	}
	req.Header = c.header.Clone()
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return turn{}, err
	}
	defer resp.Body.Close()
	if text, err = io.ReadAll(resp.Body); err != nil {
		return turn{}, err
	}
	if resp.StatusCode != http.StatusOK {
		return turn{}, fmt.Errorf("%d: %s", resp.StatusCode, text)
	}
	var answer struct {
		Choices []struct {
			Message struct{ Content string }
		}
		Content []struct{ Text string }
		Usage   struct {
			PromptTokens int `json:"prompt_tokens"`
			Details      struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
			InputTokens int `json:"input_tokens"`
			CacheRead   int `json:"cache_read_input_tokens"`
		}
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return turn{}, err
	}
	content := ""
	for _, p := range answer.Content {
		content += p.Text
	}
	if len(answer.Choices) > 0 {
		content = answer.Choices[0].Message.Content
	}
	c.messages = append(c.messages, said("assistant", content, c.parts))
	u := answer.Usage
	if c.path == "/v1/messages" {
		return turn{u.InputTokens + u.CacheRead, u.CacheRead}, nil
	}
	return turn{u.PromptTokens, u.Details.Cached}, nil
}

// kinds are the ways in which clients tell their conversations apart.
func kinds(i int) *conversation {
	system := "You answer questions about " + strings.Repeat("the world, ", 20) + "and nothing else."
	c := &conversation{path: "/v1/chat/completions", header: http.Header{}}
	switch i % 7 {
	case 0: // by its first message
	case 1: // with the same system text as others
		c.system = system
	case 2:
		c.system, c.parts = system, true
	case 3:
		c.path, c.system, c.parts = "/v1/messages", system, true
	case 4:
		c.extra = map[string]any{"prompt_cache_key": fmt.Sprint("conversation ", i)}
	case 5:
		c.header.Set("X-Session-Affinity", fmt.Sprint("conversation ", i))
	case 6: // its conversation is in the front of the body
		c.long, c.extra = true, map[string]any{"zz_long": strings.Repeat("x", 700_000)}
	}
	return c
}

// TestTwoGroups: conversations of every kind of client find their KV caches again;
// when a group is killed every request is answered, one that is too long to be sent to
// another group when its client sends it again, and only conversations of that group lose
// their cache; when it is back it is used again.
func TestTwoGroups(t *testing.T) {
	testenv.Need(t, testenv.Full, "two groups behind HAProxy")
	testenv.NeedTool(t, "haproxy", "no haproxy here (Debian's package haproxy)")
	b := newBed(t)
	const conversations = 28
	all := make([]*conversation, conversations)
	prompts := func() []float64 {
		out := make([]float64, len(b.groups))
		for i, g := range b.groups {
			if g.Rank(0).Running() {
				v, err := g.Client.Metric(b.ctx, "ringmaster_prompt_tokens_total")
				require.NoError(t, err)
				out[i] = v
			}
		}
		return out
	}
	for i := range all {
		all[i] = kinds(i)
		_, err := b.ask(all[i], fmt.Sprintf("What is %d plus 3?", i))
		require.NoError(t, err, "conversation %d", i)
	}
	first := prompts()
	for i, tokens := range first {
		require.Positive(t, tokens, "group %d is used", i)
	}
	// The next turn of a conversation shows which group has it.
	home := make([]int, conversations)
	for round := range 2 {
		for i, c := range all {
			before := prompts()
			got, err := b.ask(c, "What is the capital of France?")
			require.NoError(t, err)
			require.Positive(t, got.cached, "conversation %d, round %d, of %d tokens", i, round, got.prompt)
			after := prompts()
			at := slices.IndexFunc([]int{0, 1}, func(g int) bool { return after[g] > before[g] })
			require.GreaterOrEqual(t, at, 0)
			if round == 0 {
				home[i] = at
			}
			require.Equal(t, home[i], at, "conversation %d stays", i)
		}
	}
	require.Contains(t, home, 0)
	require.Contains(t, home, 1)

	// Both ranks of a group die while conversations continue.
	var wg sync.WaitGroup
	errs, turns := make([]error, conversations), make([]turn, conversations)
	for i, c := range all {
		wg.Go(func() {
			said := c.messages
			if turns[i], errs[i] = b.ask(c, "What is the capital of Italy?"); errs[i] != nil && c.long {
				c.messages = said
				turns[i], errs[i] = b.ask(c, "What is the capital of Italy?")
			}
		})
	}
	for rank := range 2 {
		_, err := b.groups[0].Signal(rank, syscall.SIGKILL)
		require.NoError(t, err)
	}
	wg.Wait()
	for i, err := range errs {
		require.NoError(t, err, "conversation %d of group %d", i, home[i])
	}
	for i, c := range all {
		got, err := b.ask(c, "What is the capital of Spain?")
		require.NoError(t, err)
		if home[i] == 1 {
			require.Positive(t, got.cached, "conversation %d of the group that is left", i)
		}
	}

	// The group is back, and with it its conversations.
	require.NoError(t, b.groups[0].Start(0, 1))
	require.NoError(t, b.groups[0].UntilReady(b.ctx), b.groups[0].Logs())
	require.NoError(t, harness.Until(b.ctx, "the group that is back to be used", func() (bool, string) {
		for i, c := range all {
			if home[i] == 0 {
				c.messages = c.messages[:2]
				_, err := b.ask(c, "What is the capital of Poland?")
				require.NoError(t, err)
			}
		}
		return prompts()[0] > 0, fmt.Sprint(prompts())
	}))
}
