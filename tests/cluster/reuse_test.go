//go:build unix

package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
	"ringmaster/model/synthetic"
	"ringmaster/tests/cluster/harness"
)

// The tests ask random trees of conversations over Chat Completions, of servers that reuse
// prompts and of one that does not. tests/reuse has more trees, in one process.
//
//	go test ./tests/cluster -run TestReuse -timeout 4h -v -args -trees 200 -seed 7
var trees = flag.Int("trees", 0, "the number of trees of TestReuse; 0: those of the form")

// message of a conversation.
type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// chat is a request.
type chat struct {
	Messages    []message `json:"messages"`
	MaxTokens   int       `json:"max_tokens"`
	Temperature float64   `json:"temperature"`
	Seed        int       `json:"seed"`
	N           int       `json:"n"`
	IgnoreEOS   bool      `json:"ignore_eos"`
	Logprobs    bool      `json:"logprobs"`
	TopLogprobs int       `json:"top_logprobs"`
}

// reply is what must not depend on a cache: the choices as sent, and the first one's text.
type reply struct {
	choices string
	text    string
	cached  int // prompt tokens that did not run
}

// post asks a server.
func (c chat) post(ctx context.Context, addr string) (reply, error) {
	body, err := json.Marshal(c)
	if err != nil {
		return reply{}, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return reply{}, err
	}
	if resp.StatusCode != http.StatusOK {
		return reply{}, fmt.Errorf("status %d: %s", resp.StatusCode, text)
	}
	var raw struct {
		Choices json.RawMessage
		Usage   struct {
			Details struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		}
	}
	if err := json.Unmarshal(text, &raw); err != nil {
		return reply{}, err
	}
	var choices []struct{ Message message }
	if err := json.Unmarshal(raw.Choices, &choices); err != nil {
		return reply{}, err
	}
	if len(choices) == 0 {
		return reply{}, fmt.Errorf("no choices: %s", text)
	}
	return reply{string(raw.Choices), choices[0].Message.Content, raw.Usage.Details.Cached}, nil
}

// tree draws the requests of clients whose conversations share beginnings.
type tree struct {
	r       *rand.Rand
	systems []string
	all     [][]message // conversations that end with an answer
}

// words is a text of n words.
func (x *tree) words(n int) string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("%c%c%d", 'a'+x.r.IntN(26), 'a'+x.r.IntN(26), x.r.IntN(100))
	}
	return strings.Join(out, " ")
}

// next draws requests that arrive at once.
func (x *tree) next() (all []chat) {
	r := x.r
	system := x.systems[r.IntN(len(x.systems))]
	kind := r.IntN(6)
	if kind == 5 {
		system = x.words(30 + r.IntN(60)) // no sequence has it yet
	}
	before := []message{{"system", system}}
	if len(x.all) > 0 && kind < 4 {
		before = x.all[r.IntN(len(x.all))]
		switch kind {
		case 0: // an earlier turn edited
			before = before[:1+2*r.IntN((len(before)+1)/2)]
		case 1: // regenerated
			before = before[:len(before)-1]
		}
	}
	for range []int{1, 1, 1, 1, 1, 2 + r.IntN(3)}[kind] {
		c := chat{Messages: slices.Clone(before), MaxTokens: 1 + r.IntN(24), Temperature: float64(r.IntN(2)), Seed: r.IntN(1000),
			N: []int{1, 1, 1, 2, 3}[r.IntN(5)], IgnoreEOS: true, Logprobs: true, TopLogprobs: 2}
		if c.Messages[len(c.Messages)-1].Role != "user" {
			c.Messages = append(c.Messages, message{"user", x.words(1 + r.IntN(40))})
		}
		all = append(all, c)
	}
	return all
}

// answered makes an answer part of the tree, unless the conversation is long.
func (x *tree) answered(c chat, a reply) {
	if len(c.Messages) < 9 {
		x.all = append(x.all, append(slices.Clone(c.Messages), message{"assistant", a.text}))
	}
}

// reuseModels are a model of each architecture.
var reuseModels = sync.OnceValues(func() (paths []string, err error) {
	for _, preset := range []string{"tiny", "ds2-tiny"} {
		c, err := synthetic.Preset(preset)
		if err != nil {
			return nil, err
		}
		c.Layers = 4
		path := filepath.Join(dir, "reuse-"+preset+".gguf")
		if _, err := c.WriteFile(path); err != nil {
			return nil, err
		}
		paths = append(paths, path)
	}
	return paths, nil
})

// TestReuse asks random trees of conversations of groups of 1 to 5 ranks, with ranks that are
// lost and return, requests that are cancelled, few places in the cache, and restarts with a
// cache on disk. Every answer has the text and the log-probabilities of a server without a
// cache.
func TestReuse(t *testing.T) {
	n := *trees
	if n == 0 {
		n = 1
		switch {
		case testenv.At(testenv.Exhaustive):
			n = 5
		case testenv.At(testenv.Full):
			n = 2
		}
	}
	paths, err := reuseModels()
	require.NoError(t, err)
	plain := make([]*bed, len(paths))
	reached := map[string]float64{}
	for i := range n {
		seed := int(*campaignSeed) + i
		k, size, over := (seed+1)%len(paths), 1+(1+seed)%5, fabrics[len(fabrics)-1-seed/2%2]
		if plain[k] == nil {
			plain[k] = formed(t, harness.Options{Size: 1, Model: paths[k], Flags: []string{"--cache-entries", "0"}})
		}
		ok := t.Run(fmt.Sprintf("seed %d, %d ranks, %s, %s", seed, size, over.name, filepath.Base(paths[k])), func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(seed), 35))
			x := &tree{r: r}
			for range 2 {
				x.systems = append(x.systems, x.words(30+r.IntN(80)))
			}
			cache := filepath.Join(t.TempDir(), "cache") + "=200MiB"
			for range 2 {
				x.life(t, plain[k], size, over, cache, reached)
			}
		})
		if !ok {
			t.Fatalf("reproduce with -args -trees 1 -seed %d", seed)
		}
	}
	t.Logf("%v", reached)
	var must []string
	if *trees == 0 || n >= 5 { // one tree may be of a single rank, which is not lost
		must = append(must, `hits_total{kind="forked"}`, "losses")
	}
	if n >= 5 {
		must = append(must, `hits_total{kind="continued"}`, `hits_total{kind="restored"}`, `dropped_total{reason="places"}`, `dropped_total{reason="memory"}`, "waited_total", "cancelled")
	}
	for _, what := range must {
		require.Positive(t, reached[what], what)
	}
}

// life asks requests of a server between two restarts.
func (x *tree) life(t *testing.T, plain *bed, size int, over fabric, cache string, reached map[string]float64) {
	r := x.r
	o := harness.Options{Size: size, Model: plain.Model, RankFlags: map[int][]string{0: {"--cache-dir", cache}},
		Flags: append([]string{"--share", []string{"experts", "all"}[r.IntN(2)], "--max-batch", fmt.Sprint(16 << r.IntN(4)),
			"--cache-entries", []string{"1", "4", "128"}[r.IntN(3)], "--max-active", fmt.Sprint(2 + r.IntN(5)), "--ctx", "4096"}, continueFlags...)}
	left := func() {}
	if size > 1 {
		left = over.prepare(t, &o)
	}
	b := newBed(t, o)
	require.NoError(t, b.StartAll(b.ctx))
	b.ready()
	for range 4 {
		x.burst(b, plain, reached)
	}
	for _, what := range []string{`hits_total{kind="continued"}`, `hits_total{kind="forked"}`, `hits_total{kind="restored"}`, "waited_total", `dropped_total{reason="places"}`, `dropped_total{reason="memory"}`} {
		reached[what] += b.metric("ringmaster_prefix_cache_" + what)
	}
	b.endsWhole()
	left()
	b.Close()
}

// burst asks several requests at once; one may be cancelled, and a rank may be lost while they run.
func (x *tree) burst(b *bed, plain *bed, reached map[string]float64) {
	r := x.r
	var all []chat
	for len(all) < 3 {
		all = append(all, x.next()...)
	}
	want, got, errs := make([]reply, len(all)), make([]reply, len(all)), make([]error, len(all))
	ask := func(b *bed, i int, ctx context.Context, to []reply) {
		to[i], errs[i] = all[i].post(ctx, b.HTTP)
	}
	each := func(do func(i int)) *sync.WaitGroup {
		var wg sync.WaitGroup
		for i := range all {
			wg.Go(func() { do(i) })
		}
		return &wg
	}
	ctx, cancel := context.WithTimeout(b.ctx, hangLimit)
	defer cancel()
	for i := range all { // one after the other, because running requests share their prefixes
		ask(plain, i, ctx, want)
		require.NoError(b.t, errs[i])
		if all[i].N == 1 {
			require.Zero(b.t, want[i].cached)
		}
	}
	gone, leave := context.WithCancel(ctx) // for the first of the burst
	defer leave()
	running := each(func(i int) {
		if i == 0 {
			ask(b, i, gone, got)
		} else {
			ask(b, i, ctx, got)
		}
	})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		running.Wait()
	}()
	cancelled := r.IntN(3) == 0
	if cancelled {
		if delay := time.Duration(r.IntN(60)-20) * time.Millisecond; delay > 0 {
			time.AfterFunc(delay, leave)
		} else {
			leave() // certainly before the answer
		}
	}
	victim := 0
	if b.Size > 1 && r.IntN(2) == 0 {
		victim = 1 + r.IntN(b.Size-1)
		const steps = "ringmaster_engine_steps_total"
		moment := b.metric(steps) + float64(r.IntN(20))
		require.NoError(b.t, harness.Until(ctx, "a moment told by steps", func() (bool, string) {
			select {
			case <-ended:
				return true, ""
			default:
			}
			now, err := b.Client.Metric(ctx, steps)
			return err == nil && now >= moment, fmt.Sprint(now, err)
		}))
		b.signal(victim, []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM}[r.IntN(2)])
		reached["losses"]++
	}
	<-ended
	for i, c := range all {
		if i == 0 && cancelled && errors.Is(errs[i], context.Canceled) {
			reached["cancelled"]++
		} else {
			require.NoError(b.t, errs[i])
			require.Equal(b.t, want[i].choices, got[i].choices, "%d messages", len(c.Messages))
			reached["answers"]++
		}
		x.answered(c, want[i])
	}
	if victim > 0 {
		b.restart(victim)
		b.untilRanks(b.Size)
	}
}
