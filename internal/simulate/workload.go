package simulate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"gonum.org/v1/gonum/stat/distuv"
)

// Each kind of chance, and each conversation, has its own stream of random numbers, so
// that configurations that differ in one thing are compared under the same work.
const (
	streamArrivals = iota + 1
	streamLosses
	streamConversations
	streamDrafts = 1 << 63
)

// Distribution makes a random variable on a source.
type Distribution func(rand.Source) distuv.Rander

// LogNormal has this mean, and a standard deviation of spread times the mean; with a
// spread of 0 it is constant. Lengths of prompts and answers have roughly this form.
func LogNormal(mean, spread float64) Distribution {
	if spread == 0 || mean == 0 {
		return Constant(mean)
	}
	v := math.Log(1 + spread*spread)
	return func(src rand.Source) distuv.Rander {
		return distuv.LogNormal{Mu: math.Log(mean) - v/2, Sigma: math.Sqrt(v), Src: src}
	}
}

// Exponential has this mean; one of 0 is always 0.
func Exponential(mean float64) Distribution {
	if mean == 0 {
		return Constant(0)
	}
	return func(src rand.Source) distuv.Rander { return distuv.Exponential{Rate: 1 / mean, Src: src} }
}

// Constant is always x.
func Constant(x float64) Distribution {
	return func(rand.Source) distuv.Rander { return constant(x) }
}

type constant float64

func (c constant) Rand() float64 { return float64(c) }

// Workload is what clients do.
type Workload struct {
	Rate  float64 // new conversations a second, for all groups
	Burst float64 // mean number that begin at once, 1 or more; bursts arrive as a Poisson process

	Turns  float64      // mean number of a conversation's requests, 1 or more, geometric
	Think  Distribution // seconds from an answer to the next request
	Prompt Distribution // tokens that a turn adds
	Answer Distribution // tokens of an answer
	Keyed  float64      // fraction of conversations with requests that name their conversation
	Shared float64      // fraction of these that use the same name, as those of one program may
}

func (w *Workload) check() error {
	switch {
	case !(w.Rate > 0) || math.IsInf(w.Rate, 0):
		return fmt.Errorf("%v conversations a second, expected a positive number", w.Rate)
	case !(w.Burst >= 1) || math.IsInf(w.Burst, 0):
		return fmt.Errorf("bursts of %v conversations, expected 1 or more", w.Burst)
	case !(w.Turns >= 1) || math.IsInf(w.Turns, 0):
		return fmt.Errorf("%v turns, expected 1 or more", w.Turns)
	case !(w.Keyed >= 0 && w.Keyed <= 1):
		return fmt.Errorf("a share of %v conversations with a key, expected 0 to 1", w.Keyed)
	case !(w.Shared >= 0 && w.Shared <= 1):
		return fmt.Errorf("a share of %v conversations with a common key, expected 0 to 1", w.Shared)
	}
	return nil
}

// arrivals makes conversations.
type arrivals struct {
	Workload
	seed   uint64
	random *rand.Rand
	wait   distuv.Rander // seconds between bursts
	number int
}

func newArrivals(w Workload, seed uint64) *arrivals {
	random := rand.New(rand.NewPCG(seed, streamArrivals))
	return &arrivals{Workload: w, seed: seed, random: random, wait: distuv.Exponential{Rate: w.Rate / w.Burst, Src: random}}
}

// next returns the time until the next burst and the number of its conversations.
func (a *arrivals) next() (time.Duration, int) {
	return seconds(a.wait.Rand()), geometric(a.random, a.Burst)
}

// geometric returns 1 or more with this mean.
func geometric(random *rand.Rand, mean float64) int {
	if mean <= 1 {
		return 1
	}
	// 1 minus a number in [0, 1), so that the logarithm is finite.
	return max(1, int(math.Ceil(math.Log(1-random.Float64())/math.Log(1-1/mean))))
}

// conversation is a client's. All of its tokens are its number, so that two conversations
// share nothing, and the turns of one share everything.
type conversation struct {
	number int
	key    uint64 // what the proxy hashes
	keyed  bool
	turns  int // that it has
	turn   int // the present one, from 1

	length, reply, pause distuv.Rander
	history              []int32
	prompt, answer       []int32 // of the present turn; parts of history

	group *group // group that has its KV cache
	life  int    // of the group
}

// conversation makes the next one.
func (a *arrivals) conversation() *conversation {
	a.number++
	pcg := rand.NewPCG(a.seed, streamConversations+uint64(a.number))
	random := rand.New(pcg)
	c := &conversation{
		number: a.number, key: random.Uint64(), keyed: random.Float64() < a.Keyed, turns: geometric(random, a.Turns),
		length: a.Prompt(pcg), reply: a.Answer(pcg), pause: a.Think(pcg),
	}
	if a.Shared > 0 && random.Float64() < a.Shared {
		c.key = a.seed
	}
	return c
}

// extend adds the next turn, what the user says and what will be answered, and returns
// its tokens. fits is false if they do not fit the context; a first turn is cut to fit
// it. If there are more tokens than room, they are returned but not added.
func (c *conversation) extend(context, room int) (added int, fits bool) {
	said, answered := tokens(c.length, context), tokens(c.reply, context)
	if len(c.history) == 0 {
		answered = min(answered, context-1)
		said = min(said, context-answered)
	}
	if len(c.history)+said+answered > context {
		return 0, false
	}
	if said+answered > room {
		return said + answered, true
	}
	c.history = append(c.history, slices.Repeat([]int32{int32(c.number)}, said+answered)...)
	c.turn++
	end := len(c.history) - answered
	c.prompt, c.answer = c.history[:end], c.history[end:]
	return said + answered, true
}

// tokens draws a number of tokens, 1 to most.
func tokens(d distuv.Rander, most int) int {
	return int(min(max(math.Ceil(d.Rand()), 1), float64(most)))
}

// continues reports whether there is another turn.
func (c *conversation) continues() bool { return c.turn < c.turns }

// think draws the time until the next turn.
func (c *conversation) think() time.Duration { return seconds(max(c.pause.Rand(), 0)) }

// cachedOn records where the KV cache of a turn is.
func (c *conversation) cachedOn(g *group) { c.group, c.life = g, g.life }
