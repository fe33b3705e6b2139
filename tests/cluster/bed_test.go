//go:build unix

// Package cluster tests clusters of real processes: their answers, their
// behaviour under faults, and how they start and stop.
//
// go test ./tests/cluster takes a minute and runs one case of each kind; more with
// RINGMASTER_FULL=1. The whole matrix of faults, phases and sizes takes about ten
// minutes:
//
//	scripts/cluster/faults.sh   (go test -timeout 60m -v ./tests/cluster -exhaustive)
//
// -v prints what was measured: how soon a fault was reported, how long recovery
// took. Tests in network namespaces need Linux and root and say NOT CHECKED
// elsewhere.
//
// Every answer, complete or interrupted, is compared token by token with that of
// one rank. Nothing depends on time: faults are injected once progress is observed,
// and every wait ends with what it waits for. That a fault was found as soon as
// documented is judged by what the program says, whose clock counts only the time
// in which it could run; how long it took is logged, and marked where it exceeds
// the documented limit, as it may on a host that is very busy.
package cluster

import (
	"bytes"
	"context"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/gguf"
	"ringmaster/internal/testenv"
	"ringmaster/model/synthetic"
	"ringmaster/tests/cluster/harness"
)

// The documented time limits.
const (
	detectSilent = 5 * time.Second // until a rank that has fallen silent is named
	detectClosed = 1 * time.Second // until a rank whose connections have closed is named
	stopAll      = 2 * time.Second // from Ctrl-C until no process is left
	// hangLimit is for what has no documented limit: it only ends a hang.
	hangLimit = 3 * time.Minute
)

// hostName names a rank as logs and errors do; all ranks run on this host.
func hostName(rank int) string {
	host, _ := os.Hostname() // without one ranks have no names either
	return distributed.RankName(rank, host)
}

// named is hostName as a regular expression.
func named(rank int) string { return regexp.QuoteMeta(hostName(rank)) }

var dir string // holds the program and the models during the run

func TestMain(m *testing.M) {
	code := func() int {
		var err error
		if dir, err = os.MkdirTemp("", "ringmaster-cluster-"); err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		// The tests mostly wait for timeouts, so run one more than there are CPUs.
		flag.Parse()
		if err := flag.Set("test.parallel", strconv.Itoa(max(runtime.GOMAXPROCS(0), *campaignJobs)+1)); err != nil {
			panic(err)
		}
		return m.Run()
	}()
	os.Exit(code)
}

var build = sync.OnceValues(func() (string, error) {
	return testenv.BuildProgram(context.Background(), dir)
})

// program is the binary under test, built once.
func program(t *testing.T) string {
	t.Helper()
	path, err := build()
	require.NoError(t, err)
	return path
}

// writeModel writes a synthetic model.
func writeModel(name string, seed uint64, layers int) (string, error) {
	c, err := synthetic.Preset("tiny")
	if err != nil {
		return "", err
	}
	c.Seed, c.Layers = seed, layers
	path := filepath.Join(dir, name)
	_, err = c.WriteFile(path)
	return path, err
}

// slowModel has enough layers that a fault can be injected in the middle of a
// prefill or a decode on any host.
var slowModel = sync.OnceValues(func() (string, error) { return writeModel("slow.gguf", 1, 16) })

// writeTwin writes slowModel with other weights behind the first bytes of each tensor, so
// that its metadata and the sample of its weights are those of slowModel.
func writeTwin() (string, error) {
	one, err := slowModel()
	if err != nil {
		return "", err
	}
	two, err := writeModel("seed2.gguf", 2, 16)
	if err != nil {
		return "", err
	}
	a, err := gguf.Open(one)
	if err != nil {
		return "", err
	}
	defer a.Close()
	b, err := gguf.Open(two)
	if err != nil {
		return "", err
	}
	defer b.Close()
	raw, err := os.ReadFile(one)
	if err != nil {
		return "", err
	}
	const sampled = 4096 // bytes of each tensor, by gguf.WeightSample
	others := b.Tensors()
	for i, t := range a.Tensors() {
		if len(t.Data) > sampled {
			copy(raw[bytes.Index(raw, t.Data)+sampled:], others[i].Data[sampled:])
		}
	}
	path := filepath.Join(dir, "twin.gguf")
	return path, os.WriteFile(path, raw, 0o600)
}

// otherModel has a different shape; strangeModel has the metadata of slowModel and other
// weights; twinModel has other weights only outside the sample.
var (
	otherModel   = sync.OnceValues(func() (string, error) { return writeModel("other.gguf", 1, 17) })
	strangeModel = sync.OnceValues(func() (string, error) { return writeModel("strange.gguf", 2, 16) })
	twinModel    = sync.OnceValues(writeTwin)
	// campaignModel has fewer layers, because a campaign times its faults by steps.
	campaignModel = sync.OnceValues(func() (string, error) { return writeModel("campaign.gguf", 3, 8) })
)

func model(t *testing.T, of func() (string, error)) string {
	t.Helper()
	path, err := of()
	require.NoError(t, err)
	return path
}

// bed is a test bed: a cluster with the assertions of these tests.
type bed struct {
	*harness.Cluster
	t      *testing.T
	ctx    context.Context
	formed bool // it has been ready once
}

// quick sets the default --peer-timeout, for tests that depend on it. The others
// use a longer one, because all ranks share a host that may be busy.
var quick = []string{"--peer-timeout", "4s"}

// waits is quick for tests of --on-loss wait.
var waits = append([]string{"--on-loss", "wait"}, quick...)

// newBed creates a cluster with --reduce exact, so that its answers can be compared
// with those of one rank. It is closed at the end of the test; if that failed its
// logs are shown.
func newBed(t *testing.T, o harness.Options) *bed {
	t.Helper()
	o.Program = program(t)
	o.Flags = append([]string{"--ctx", "8192", "--reduce", "exact", "--max-batch", "64", "--peer-timeout", "20s"}, o.Flags...)
	c, err := harness.NewCluster(o)
	require.NoError(t, err)
	b := &bed{Cluster: c, t: t, ctx: testenv.Within(t, 30*hangLimit)}
	t.Cleanup(func() {
		c.Close()
		if t.Failed() {
			t.Logf("logs:\n%s", c.Logs())
		}
	})
	return b
}

// quietPeer is the program's text about a silent rank.
var quietPeer = regexp.MustCompile(`no heartbeat for ([0-9a-zµ.]+)`)

// requireDetected requires that a fault was found in the documented way, and so within the
// documented time: by the end of a connection, or by silence of at most the limit. text
// says how; took is only logged.
func requireDetected(t *testing.T, text string, limit, took time.Duration) {
	t.Helper()
	if m := quietPeer.FindStringSubmatch(text); m != nil {
		require.Equal(t, detectSilent, limit, "only a timeout found what closes a connection: %s", text)
		quiet, err := time.ParseDuration(m[1])
		require.NoError(t, err)
		require.LessOrEqual(t, quiet, limit, text)
	}
	logTime(t, "found", limit, took)
}

// logTime logs how long something took that has a documented limit.
func logTime(t *testing.T, what string, limit, took time.Duration) {
	t.Helper()
	mark := ""
	if took > limit {
		mark = ": BEYOND THE DOCUMENTED LIMIT, a very busy host?"
	}
	t.Logf("%s after %v, documented %v%s", what, took.Round(time.Millisecond), limit, mark)
}

// network creates network namespaces, or skips the test.
func network(t *testing.T, size int) *harness.Net {
	t.Helper()
	program(t)
	if err := harness.NetAvailable(); err != nil {
		t.Skipf("NOT CHECKED: %v", err)
	}
	n, err := harness.NewNet(size)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, n.Close()) })
	return n
}

// ready waits until the cluster serves.
func (b *bed) ready() {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, hangLimit)
	defer cancel()
	require.NoError(b.t, b.UntilReady(ctx))
	b.formed = true
}

// formed is a new bed that serves.
func formed(t *testing.T, o harness.Options) *bed {
	t.Helper()
	b := newBed(t, o)
	b.form()
	return b
}

// form starts all ranks and waits until the cluster serves.
func (b *bed) form() {
	b.t.Helper()
	for r := range b.Size {
		require.NoError(b.t, b.Start(r))
	}
	b.ready()
}

// signal sends a signal to a rank and returns the time just before.
func (b *bed) signal(rank int, s syscall.Signal) time.Time {
	b.t.Helper()
	at, err := b.Signal(rank, s)
	require.NoError(b.t, err)
	return at
}

// restart waits until the process of a rank has exited and starts it again.
func (b *bed) restart(rank int) {
	b.t.Helper()
	exitCode(b.t, b.Rank(rank))
	require.NoError(b.t, b.Start(rank))
}

// waitLog waits until a rank has logged a line that matches a pattern, starting at line from,
// and returns it.
func (b *bed) waitLog(rank, from int, pattern string) string {
	b.t.Helper()
	return waitLine(b.t, b.Rank(rank), from, pattern)
}

// waitLine is waitLog for a process that need not be a rank.
func waitLine(t *testing.T, p *harness.Process, from int, pattern string) string {
	t.Helper()
	ctx := testenv.Within(t, hangLimit)
	line, err := p.Log.Wait(ctx, from, regexp.MustCompile(pattern))
	require.NoError(t, err, "%s\n%s", p.Args, p.Log)
	return line
}

// exitCode waits until a process has exited.
func exitCode(t *testing.T, p *harness.Process) int {
	t.Helper()
	ctx := testenv.Within(t, hangLimit)
	code, err := p.Wait(ctx)
	require.NoError(t, err, "%s\n%s", p.Args, p.Log)
	return code
}

// on returns the bed for use in a subtest.
func (b *bed) on(t *testing.T) *bed {
	moved := *b
	moved.t = t
	return &moved
}

// question is a request: the number of prompt tokens and of tokens to generate.
type question struct{ prompt, tokens int }

// The questions of the tests: longPrompt is mostly prefill, longAnswer mostly
// decode.
var (
	brief      = question{40, 24}
	longPrompt = question{3000, 4}
	longAnswer = question{20, 200}
)

// seed of the prompts.
const seed = 5

func (q question) request(t *testing.T, model string) harness.Request {
	t.Helper()
	v, err := harness.ReadVocabulary(model)
	require.NoError(t, err)
	return harness.Request{Prompt: v.Prompt(seed, q.prompt), MaxTokens: q.tokens, Top: 2}
}

// reference holds the answers of one rank; each is generated once per model.
type reference struct {
	mu      sync.Mutex
	answers map[question]*harness.Answer
}

var references sync.Map // path of the model: *reference

// want returns the answer of one rank, without --distributed.
func want(t *testing.T, model string, q question) *harness.Answer {
	t.Helper()
	program := program(t)
	r, _ := references.LoadOrStore(model, &reference{answers: map[question]*harness.Answer{}})
	ref := r.(*reference)
	ref.mu.Lock()
	defer ref.mu.Unlock()
	if ref.answers[q] == nil {
		all := []question{brief, longPrompt, longAnswer}
		if !slices.Contains(all, q) {
			all = []question{q}
		}
		require.NoError(t, ref.ask(t, program, model, all))
	}
	return ref.answers[q]
}

func (r *reference) ask(t *testing.T, program, model string, all []question) error {
	c, err := harness.NewCluster(harness.Options{Program: program, Size: 1, Model: model,
		Flags: []string{"--ctx", "8192", "--reduce", "exact"}})
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 2*hangLimit)
	defer cancel()
	if err := c.StartAll(ctx); err != nil {
		return err
	}
	for _, q := range all {
		a, err := c.Client.Complete(ctx, q.request(t, model))
		if err != nil {
			return err
		}
		r.answers[q] = a
	}
	return nil
}

// complete asks a question.
func (b *bed) complete(q question) *harness.Answer {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, hangLimit)
	defer cancel()
	a, err := b.Client.Complete(ctx, q.request(b.t, b.Model))
	require.NoError(b.t, err)
	return a
}

// requireAnswer asks a question and requires the answer of one rank, bit for bit.
func (b *bed) requireAnswer(q question) {
	b.t.Helper()
	b.requireComplete(b.complete(q), q)
}

// requireComplete requires that an answer has all tokens of one rank.
func (b *bed) requireComplete(a *harness.Answer, q question) {
	b.t.Helper()
	require.Nil(b.t, a.Err, "%+v", a.Err)
	require.Len(b.t, a.Tokens, q.tokens)
	b.requirePrefix(a, q)
}

// requirePrefix requires that every token of an answer, which may have been
// interrupted, is that of one rank.
func (b *bed) requirePrefix(a *harness.Answer, q question) {
	b.t.Helper()
	one := want(b.t, b.Model, q)
	require.Nil(b.t, one.Err, "%+v", one.Err)
	require.Len(b.t, one.Tokens, q.tokens)
	require.LessOrEqual(b.t, len(a.Tokens), len(one.Tokens))
	for i, got := range a.Tokens {
		require.True(b.t, one.Tokens[i].Equal(got, true), "token %d of %d: one rank %+v, the cluster %+v", i, len(a.Tokens), one.Tokens[i], got)
	}
}
