//go:build unix

// Package cluster tests clusters of real processes: what they answer, what
// befalls them, and how they start and end.
//
// go test ./tests/cluster takes a minute and tries one of each kind; more with
// RINGMASTER_FULL=1. The whole matrix of faults, phases and sizes takes some ten
// minutes:
//
//	scripts/cluster/faults.sh   (RINGMASTER_FULL=all go test -timeout 60m -v ./tests/cluster)
//
// -v prints what was measured: how soon a fault was told, how long recovery
// took. Tests in network namespaces need Linux and root and say NOT CHECKED
// elsewhere.
//
// Every answer, whole or broken off, is compared token by token with that of one
// rank. Bounds of time are the documented ones plus slack for a loaded machine;
// within them nothing depends on time: faults strike on a sign of progress.
package cluster

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/model/synthetic"
	"ringmaster/tests/cluster/harness"
)

// The documented figures, and how much more a loaded machine may take.
const (
	noticeQuiet  = 5 * time.Second // until a rank that fell silent is named
	noticeClosed = 1 * time.Second // until a rank whose connections closed is
	endAll       = 2 * time.Second // from Ctrl-C until nothing is left
	slack        = 2 * time.Second
	// patience is for what has no figure: it only keeps a hang from being
	// endless.
	patience = 3 * time.Minute
)

var dir string // of the program and the models, for the whole run

func TestMain(m *testing.M) {
	code := func() int {
		var err error
		if dir, err = os.MkdirTemp("", "ringmaster-cluster-"); err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		// Most of the time is spent in waiting for deadlines to pass.
		flag.Parse()
		if err := flag.Set("test.parallel", strconv.Itoa(runtime.GOMAXPROCS(0)+1)); err != nil {
			panic(err)
		}
		return m.Run()
	}()
	os.Exit(code)
}

var build = sync.OnceValues(func() (string, error) {
	return harness.Build(context.Background(), "../..", dir)
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

// slowModel is deep enough that a fault strikes in the middle of a prefill or
// an answer, on any machine.
var slowModel = sync.OnceValues(func() (string, error) { return writeModel("slow.gguf", 1, 16) })

// otherModel has another shape; twinModel has the shape of slowModel and other
// weights, which a look at the file's tables does not tell.
var (
	otherModel = sync.OnceValues(func() (string, error) { return writeModel("other.gguf", 1, 17) })
	twinModel  = sync.OnceValues(func() (string, error) { return writeModel("twin.gguf", 2, 16) })
)

func model(t *testing.T, of func() (string, error)) string {
	t.Helper()
	path, err := of()
	require.NoError(t, err)
	return path
}

// bed is a cluster under test.
type bed struct {
	*harness.Cluster
	t      *testing.T
	ctx    context.Context
	formed bool // it has been ready once
}

// quick are the flags of a cluster whose deadline of silence is tested: the
// standard one. All others wait longer, for here all ranks share a machine that
// may be busy with other things.
var quick = []string{"--peer-timeout", "4s"}

// newBed makes a cluster that adds exactly, so that its answers can be held
// against those of one rank. It is closed when the test ends, and its logs are
// shown if that failed.
func newBed(t *testing.T, o harness.Options) *bed {
	t.Helper()
	o.Program = program(t)
	o.Flags = append([]string{"--ctx", "8192", "--reduce", "exact", "--prefill-chunk", "32", "--peer-timeout", "20s"}, o.Flags...)
	c, err := harness.NewCluster(o)
	require.NoError(t, err)
	b := &bed{Cluster: c, t: t, ctx: within(t, 30*patience)}
	t.Cleanup(func() {
		c.Close()
		if t.Failed() {
			t.Logf("logs:\n%s", c.Logs())
		}
	})
	return b
}

// within is a context that ends after d, or with the test.
func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// network makes namespaces, or skips.
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
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	require.NoError(b.t, b.UntilReady(ctx))
	b.formed = true
}

// on moves the bed to a subtest.
func (b *bed) on(t *testing.T) *bed {
	moved := *b
	moved.t = t
	return &moved
}

// question is a prompt and how many tokens are asked for.
type question struct{ prompt, tokens int }

// The questions of the tests: in long, most of the time goes into the prompt;
// in talk, into the answer.
var (
	brief = question{40, 24}
	long  = question{3000, 4}
	talk  = question{20, 300}
)

// seed of the prompts.
const seed = 5

func (q question) request(t *testing.T, model string) harness.Request {
	t.Helper()
	v, err := harness.ReadVocabulary(model)
	require.NoError(t, err)
	return harness.Request{Prompt: v.Prompt(seed, q.prompt), MaxTokens: q.tokens, Top: 2}
}

// reference is what one rank answers; it is asked once for each model.
type reference struct {
	once    sync.Once
	answers map[question]*harness.Answer
	err     error
}

var references sync.Map // path of the model: *reference

// want is the answer of one rank, without --distributed.
func want(t *testing.T, model string, q question) *harness.Answer {
	t.Helper()
	program := program(t)
	r, _ := references.LoadOrStore(model, &reference{})
	ref := r.(*reference)
	ref.once.Do(func() { ref.err = ref.ask(t, program, model) })
	require.NoError(t, ref.err)
	return ref.answers[q]
}

func (r *reference) ask(t *testing.T, program, model string) error {
	r.answers = map[question]*harness.Answer{}
	c, err := harness.NewCluster(harness.Options{Program: program, Size: 1, Model: model,
		Flags: []string{"--ctx", "8192", "--reduce", "exact"}})
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	if err := c.StartAll(ctx); err != nil {
		return err
	}
	for _, q := range []question{brief, long, talk} {
		a, err := c.Client.Complete(ctx, q.request(t, model))
		if err != nil {
			return err
		}
		r.answers[q] = a
	}
	return nil
}

// right asks a question and requires one rank's answer, bit for bit.
func (b *bed) right(q question) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	a, err := b.Client.Complete(ctx, q.request(b.t, b.Model))
	require.NoError(b.t, err)
	require.Nil(b.t, a.Err, "%+v", a.Err)
	require.Len(b.t, a.Tokens, q.tokens)
	b.prefix(a, q)
}

// prefix requires that every token of an answer, which may have broken off, is
// that of one rank.
func (b *bed) prefix(a *harness.Answer, q question) {
	b.t.Helper()
	one := want(b.t, b.Model, q)
	require.Nil(b.t, one.Err, "%+v", one.Err)
	require.Len(b.t, one.Tokens, q.tokens)
	require.LessOrEqual(b.t, len(a.Tokens), len(one.Tokens))
	for i, got := range a.Tokens {
		require.True(b.t, one.Tokens[i].Equal(got, true), "token %d of %d: one rank %+v, the cluster %+v", i, len(a.Tokens), one.Tokens[i], got)
	}
}
