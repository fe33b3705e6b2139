//go:build unix

package cluster

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
	"ringmaster/model/synthetic"
	"ringmaster/tests/cluster/harness"
)

// metric reads a metric of rank 0.
func (b *bed) metric(name string) float64 {
	b.t.Helper()
	v, err := b.Client.Metric(b.ctx, name)
	require.NoError(b.t, err)
	return v
}

// awaitSaved waits until rank 0 has written n sequences to disk.
func (b *bed) awaitSaved(n float64) {
	b.t.Helper()
	require.NoError(b.t, harness.Until(testenv.Within(b.t, hangLimit), fmt.Sprint(n, " sequences on disk"), func() (bool, string) {
		saved := b.metric("ringmaster_disk_cache_saved_total")
		return saved == n, fmt.Sprint(saved)
	}))
}

// TestConversationsOutliveAServer: a conversation continues from its snapshot on disk after
// the server, or the leader with its group, was ended or killed. It has the bits of a server
// that ran all of it, with other chunks, slots and numbers of ranks than before.
func TestConversationsOutliveAServer(t *testing.T) {
	t.Parallel()
	sizes, presets := []int{1}, []string{"tiny"}
	if testenv.At(testenv.Full) {
		sizes, presets = []int{1, 3}, []string{"tiny", "ds2-tiny"}
	}
	for _, preset := range presets {
		c, err := synthetic.Preset(preset)
		require.NoError(t, err)
		path := filepath.Join(t.TempDir(), preset+".gguf")
		_, err = c.WriteFile(path)
		require.NoError(t, err)
		for _, size := range sizes {
			t.Run(fmt.Sprintf("%s, %d ranks", preset, size), func(t *testing.T) {
				conversationOverRestarts(t, path, size)
			})
		}
	}
}

func conversationOverRestarts(t *testing.T, model string, size int) {
	cache := filepath.Join(t.TempDir(), "cache")
	random := rand.New(rand.NewPCG(3, 1))
	prompt := make([]int32, 300)
	for i := range prompt {
		prompt[i] = int32(random.IntN(250))
	}
	// Each life has other settings, because the bits must not depend on them.
	lives := []struct {
		size  int
		flags []string
		end   syscall.Signal
	}{
		{size, []string{"--max-batch", "128"}, syscall.SIGTERM},
		{size, []string{"--max-batch", "14", "--cache-entries", "0"}, syscall.SIGKILL},
		{4 - size, []string{"--max-batch", "256", "--ctx", "4096"}, syscall.SIGTERM},
		{size, nil, syscall.SIGTERM},
	}
	if !testenv.At(testenv.Full) {
		lives[2].size = 1 // the fast form has no group
	}
	plain := newBed(t, harness.Options{Size: 1, Model: model, Flags: []string{"--cache-entries", "0"}})
	require.NoError(t, plain.StartAll(plain.ctx))
	for i, life := range lives {
		b := newBed(t, harness.Options{Size: life.size, Model: model, Flags: life.flags,
			RankFlags: map[int][]string{0: {"--cache-dir", cache + "=200MiB"}}})
		require.NoError(t, b.StartAll(b.ctx))
		r := harness.Request{Prompt: prompt, MaxTokens: 12, Top: 3}
		want, err := plain.Client.Complete(plain.ctx, r)
		require.NoError(t, err)
		got, err := b.Client.Complete(b.ctx, r)
		require.NoError(t, err)
		require.Len(t, got.Tokens, 12)
		for j := range want.Tokens {
			require.True(t, want.Tokens[j].Equal(got.Tokens[j], true), "life %d, token %d: %+v, expected %+v", i, j, got.Tokens[j], want.Tokens[j])
		}
		if i > 0 {
			require.EqualValues(t, 1, b.metric("ringmaster_disk_cache_hits_total"), "life %d", i)
			// All tokens but those added since the sequence was saved, and at most 64 more.
			require.Greater(t, b.metric("ringmaster_disk_cache_hit_tokens_total"), float64(len(prompt)-10-64))
		}
		if life.end == syscall.SIGKILL {
			b.awaitSaved(1)
		}
		b.signal(0, life.end)
		exitCode(t, b.Rank(0))
		require.NotContains(t, b.Logs(), "cannot be continued after a restart")
		require.Contains(t, b.Logs(), "prefix cache on disk")
		b.Close()
		// The conversation continues with the answer without its last tokens, and a question.
		for range 10 {
			prompt = append(prompt, int32(random.IntN(250)))
		}
	}
}

// TestReplaysOutliveAServer: a call that a client sends back after a restart, without the
// reasoning that came before it, has the tokens in its prompt that were sampled, so that the
// snapshot on disk is found with all of the answer; one with a forged id has not.
func TestReplaysOutliveAServer(t *testing.T) {
	testenv.Need(t, testenv.Full, "replays that outlive a server")
	t.Parallel()
	cache := filepath.Join(t.TempDir(), "cache")
	const (
		question = `{"role":"user","content":"What is the capital of France? Think about it, then look up the weather there, please, and tell me all of it in a few words."}`
		rest     = `,"reasoning_effort":"high","temperature":0,"max_tokens":600,"tool_choice":"required","parallel_tool_calls":false,"tools":[{"type":"function","function":{` +
			`"name":"weather","parameters":{"type":"object","properties":{"city":{"enum":["Rome","Paris"]},"days":{"type":"integer","minimum":1,"maximum":9}},"required":["city","days"],"additionalProperties":false}}}]}`
	)
	type reply struct {
		Choices []struct {
			Message struct {
				Reasoning string `json:"reasoning_content"`
				ToolCalls []struct {
					ID       string                           `json:"id"`
					Function struct{ Name, Arguments string } `json:"function"`
				} `json:"tool_calls"`
			}
		}
		Usage struct {
			Prompt     int `json:"prompt_tokens"`
			Completion int `json:"completion_tokens"`
			Details    struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		}
	}
	var b *bed
	serve := func() {
		b = newBed(t, harness.Options{Size: 1, Flags: []string{"--ctx", "4096"}, RankFlags: map[int][]string{0: {"--cache-dir", cache}}})
		require.NoError(t, b.StartAll(b.ctx))
	}
	end := func(s syscall.Signal) {
		b.signal(0, s)
		exitCode(t, b.Rank(0))
		b.Close()
	}
	post := func(messages string) (r reply) {
		req, err := http.NewRequestWithContext(testenv.Within(t, hangLimit), http.MethodPost, "http://"+b.HTTP+"/v1/chat/completions", strings.NewReader(`{"messages":[`+messages+`]`+rest))
		require.NoError(t, err)
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer func() { require.NoError(t, resp.Body.Close()) }()
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, resp.StatusCode, string(body))
		require.NoError(t, json.Unmarshal(body, &r))
		return r
	}
	serve()
	first := post(question)
	calls := first.Choices[0].Message.ToolCalls
	require.Len(t, calls, 1)
	require.NotEmpty(t, first.Choices[0].Message.Reasoning)
	b.awaitSaved(2) // the tools, which other conversations share, and the rest
	end(syscall.SIGKILL)
	history := func(id string) string {
		arguments := testenv.JSON(t, calls[0].Function.Arguments)
		return question + `,{"role":"assistant","content":null,"tool_calls":[{"id":"` + id + `","type":"function","function":{"name":"weather","arguments":` + string(arguments) +
			`}}]},{"role":"tool","tool_call_id":"` + id + `","content":"22"}`
	}
	serve()
	forged := post(history(calls[0].ID + "x"))
	require.Less(t, forged.Usage.Details.Cached, first.Usage.Prompt+first.Usage.Completion-1)
	again := post(history(calls[0].ID))
	require.GreaterOrEqual(t, again.Usage.Details.Cached, first.Usage.Prompt+first.Usage.Completion-2)
	require.EqualValues(t, 1, b.metric("ringmaster_disk_cache_hits_total"))
	end(syscall.SIGTERM)
}
