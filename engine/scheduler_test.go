package engine

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/engine/drafts"
	"ringmaster/engine/enginetest"
	"ringmaster/model"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the transcripts with the output of this run")

// TestSchedulerTranscripts runs testdata/scheduler/*.txt. A transcript is
// paragraphs of a command, a line of four dashes, and the output of the command;
// lines that start with # are comments. The commands:
//
//	config active=2 queue=1 step=8 chunk=4 keep=2 rewind=1 memory=50 seconds=60 least=4 anywhere=1 tail=4 replay=9
//	                     a new scheduler; memory is its budget, see enginetest.Model.SequenceBytes;
//	                     least is leastShared; anywhere: forks need no checkpoints
//	budget N             another budget
//	pass SECONDS         time passes
//	weight a 3           the weight of tenant a
//	add [of=g] [marked] [by=a] 1..5 9 [all] [answer=N] [branches=5,9]
//	                     queue a prompt, of group g, to be kept, of tenant a; all: with
//	                     log-probabilities; answer: tokens to reserve memory for
//	plan                 the next step, which is then in flight
//	commit, abort        the outcome of the step
//	spoil REQUEST        before commit: a logit of the request is not finite
//	nomemory [SEQUENCE]  in place of these: the model had no memory for it
//	forget               the model has lost all sequences
//	draw REQUEST TOKEN   the token sampled for a request
//	guess REQUEST 5 6 7  a draft of what follows it, after a match of 20 tokens
//	keep REQUEST N       before commit: so many tokens of its part are kept, because the next
//	                     was wrong
//	finish, cancel REQUEST
//	await REQUEST        its answer called functions
//	values               the entries of the prefix cache, the next to be evicted first
//	state                the queue, the active requests and the prefix cache
//
// go test ./engine -run Transcripts -rewrite writes new output; read it before
// committing it.
func TestSchedulerTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/scheduler/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			var sched *scheduler
			var out []string
			for paragraph := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n\n") {
				head, want, isCommand := strings.Cut(paragraph, "\n----")
				if !isCommand {
					out = append(out, paragraph)
					continue
				}
				lines := strings.Split(head, "\n")
				command := lines[len(lines)-1]
				got := schedulerCommand(t, &sched, strings.Fields(command))
				want = strings.TrimPrefix(want, "\n")
				if got != want && !*rewrite {
					t.Errorf("%s: %s\ngave\n%s\nwant\n%s", file, command, got, want)
				}
				out = append(out, head+"\n----\n"+got)
			}
			if *rewrite {
				require.NoError(t, os.WriteFile(file, []byte(strings.Join(out, "\n\n")+"\n"), 0o644))
			}
		})
	}
}

func schedulerCommand(t *testing.T, sched **scheduler, words []string) string {
	t.Helper()
	s := *sched
	number := func(i int) int {
		n, err := strconv.Atoi(words[i])
		require.NoError(t, err, "%v", words)
		return n
	}
	var b strings.Builder
	switch words[0] {
	case "config":
		l, budget := parseLimits(t, words[1:])
		*sched = &scheduler{limits: l, now: time.Unix(0, 0)}
		if budget > 0 {
			(*sched).mem.budget, (*sched).mem.size = int64(budget), enginetest.NewModel(enginetest.Size, enginetest.Options{}).SequenceBytes
		}
		return "ok"
	case "budget": // of the next epoch
		s.mem.budget = int64(number(1))
		return "ok"
	case "pass":
		s.now = s.now.Add(time.Duration(number(1)) * time.Second)
		d, ok := s.untilExpiry()
		if !ok {
			return "nothing expires"
		}
		return fmt.Sprintf("the next entry expires in %v", d)
	case "weight":
		s.setWeight(words[1], number(2))
		return "ok"
	case "add":
		words, all, tenant, answer, h, branches := words[1:], false, "", 1, hints{}, []int(nil)
		if group, ok := strings.CutPrefix(words[0], "of="); ok {
			words, h.group = words[1:], group
		}
		if words[0] == "marked" {
			words, h.marked = words[1:], true
		}
		if name, ok := strings.CutPrefix(words[0], "by="); ok {
			words, tenant = words[1:], name
		}
		if list, ok := strings.CutPrefix(words[len(words)-1], "branches="); ok {
			words = words[:len(words)-1]
			for n := range strings.SplitSeq(list, ",") {
				at, err := strconv.Atoi(n)
				require.NoError(t, err)
				branches = append(branches, at)
			}
		}
		if last, ok := strings.CutPrefix(words[len(words)-1], "answer="); ok {
			words = words[:len(words)-1]
			var err error
			answer, err = strconv.Atoi(last)
			require.NoError(t, err)
		}
		if words[len(words)-1] == "all" {
			words, all = words[:len(words)-1], true
		}
		switch s.roomFor(tenant, 1) {
		case queueFull:
			return "the queue is full"
		case shareFull:
			return "the tenant's share of the queue is full"
		}
		return fmt.Sprintf("request %d", s.add(tenant, parseTokens(t, words), branches, all, "", h, answer, 0))
	case "plan":
		step, ok := s.plan()
		failed := s.mem.failed
		s.mem.failed = nil
		for _, id := range failed {
			fmt.Fprintf(&b, "request %d fails for lack of memory\n", id)
		}
		switch {
		case ok:
			b.WriteString(showStep(step))
		case len(failed) == 0:
			return "nothing to do"
		}
	case "commit":
		parts, rows := s.commit()
		if len(parts) == 0 {
			return "no request continues"
		}
		for i, p := range parts {
			switch {
			case p.drafts() > 0:
				fmt.Fprintf(&b, "request %d: rows %d to %d, %d of %d tokens kept\n", p.task.id, rows[i], rows[i]+p.rows-1, p.kept, p.n)
			case p.last && p.rows > 1:
				fmt.Fprintf(&b, "request %d: rows %d to %d, draw from the last\n", p.task.id, rows[i], rows[i]+p.rows-1)
			case p.last:
				fmt.Fprintf(&b, "request %d: draw from row %d\n", p.task.id, rows[i])
			case p.rows > 0:
				fmt.Fprintf(&b, "request %d: rows %d to %d, %d of %d\n", p.task.id, rows[i], rows[i]+p.rows-1, p.pos+p.n, len(p.task.prompt))
			default:
				fmt.Fprintf(&b, "request %d: %d of %d\n", p.task.id, p.pos+p.n, len(p.task.prompt))
			}
		}
	case "spoil":
		for _, p := range s.parts {
			if p.task.id == requestID(number(1)) {
				s.spoil(p)
			}
		}
		return "ok"
	case "abort":
		s.abort()
		return "ok"
	case "nomemory":
		var blamed model.SeqID
		if len(words) > 1 {
			blamed = model.SeqID(number(1))
		}
		if victim := s.noMemory(blamed); victim != 0 {
			return fmt.Sprintf("request %d fails", victim)
		}
		return "try again"
	case "forget":
		lost := s.forget()
		if len(lost) == 0 {
			return "no request ends"
		}
		for _, id := range lost {
			fmt.Fprintf(&b, "request %d ends\n", id)
		}
	case "draw":
		s.next(requestID(number(1)), int32(number(2)))
		return "ok"
	case "guess":
		s.guess(requestID(number(1)), drafts.Guess{Tokens: parseTokens(t, words[2:]), Match: 20})
		return "ok"
	case "keep":
		for i := range s.parts {
			if p := &s.parts[i]; p.task.id == requestID(number(1)) {
				p.kept = number(2)
				p.refuted = p.kept < p.n
			}
		}
		return "ok"
	case "finish":
		s.finish(requestID(number(1)))
		return "ok"
	case "await":
		s.await(requestID(number(1)))
		return "ok"
	case "values":
		all := slices.Clone(s.prefixCache)
		slices.SortStableFunc(all, func(a, b *entry) int { return cmp.Compare(s.value(a, all), s.value(b, all)) })
		for _, k := range all {
			fmt.Fprintf(&b, "sequence %d of %d tokens: %.1f\n", k.seq, len(k.tokens), s.value(k, all))
		}
	case "cancel":
		s.cancel(requestID(number(1)))
		if s.allCancelled() {
			return "the step in flight may end"
		}
		return "ok"
	case "state":
		for _, t := range s.queue {
			fmt.Fprintf(&b, "waiting: request %d\n", t.id)
		}
		for _, t := range s.active {
			fmt.Fprintf(&b, "active: request %d, sequence %d, %d tokens run\n", t.id, t.seq, len(t.tokens))
		}
		for _, k := range s.prefixCache {
			fmt.Fprintf(&b, "kept: sequence %d of %s\n", k.seq, showTokens(k.tokens))
		}
		for _, id := range s.drop {
			fmt.Fprintf(&b, "to drop: sequence %d\n", id)
		}
		if s.mem.limited() {
			fmt.Fprintf(&b, "memory: %d of %d\n", s.use(), s.mem.budget)
		}
		if b.Len() == 0 {
			return "empty"
		}
	default:
		t.Fatalf("unknown command %q", words[0])
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func parseLimits(t *testing.T, words []string) (l limits, budget int) {
	seconds, anywhere := 0, 0
	l = limits{active: 2, queue: 2, tokenBudget: 8, prefillChunk: 4, cacheSize: 2, rewind: 1, leastShared: leastShared}
	for _, w := range words {
		name, value, _ := strings.Cut(w, "=")
		n, err := strconv.Atoi(value)
		field, ok := map[string]*int{
			"active": &l.active, "queue": &l.queue, "step": &l.tokenBudget,
			"chunk": &l.prefillChunk, "keep": &l.cacheSize, "rewind": &l.rewind, "tail": &l.tail, "replay": &l.replay,
			"memory": &budget, "seconds": &seconds, "least": &l.leastShared, "anywhere": &anywhere,
		}[name]
		if err != nil || !ok {
			t.Fatalf("config %q", w)
		}
		*field = n
	}
	l.anywhere = anywhere > 0
	l.keepFor = time.Duration(seconds) * time.Second
	return l, budget
}

// parseTokens reads numbers and ranges: 1..3 7 is 1 2 3 7.
func parseTokens(t *testing.T, words []string) (tokens []int32) {
	for _, w := range words {
		first, last, isRange := strings.Cut(w, "..")
		if !isRange {
			last = first
		}
		a, err1 := strconv.Atoi(first)
		z, err2 := strconv.Atoi(last)
		require.NoError(t, err1, "tokens %q", w)
		require.NoError(t, err2, "tokens %q", w)
		for ; a <= z; a++ {
			tokens = append(tokens, int32(a))
		}
	}
	return tokens
}

// showTokens is the inverse of parseTokens.
func showTokens(tokens []int32) string {
	var words []string
	for i := 0; i < len(tokens); {
		j := i
		for j+1 < len(tokens) && tokens[j+1] == tokens[j]+1 {
			j++
		}
		switch {
		case j-i > 1:
			words = append(words, fmt.Sprintf("%d..%d", tokens[i], tokens[j]))
		default:
			j = i
			words = append(words, fmt.Sprint(tokens[i]))
		}
		i = j + 1
	}
	return strings.Join(words, " ")
}

func showStep(step model.Step) string {
	var b strings.Builder
	for _, id := range step.Drop {
		fmt.Fprintf(&b, "drop sequence %d\n", id)
	}
	for _, c := range step.Checkpoints {
		fmt.Fprintf(&b, "sequence %d has checkpoints at %v\n", c.Seq, c.At)
	}
	for _, f := range step.Forks {
		fmt.Fprintf(&b, "sequence %d is a fork of %d at %d", f.Seq, f.From, f.Length)
		if f.Replay {
			b.WriteString(", and runs tokens again up to there")
		}
		b.WriteByte('\n')
	}
	for _, e := range step.Entries {
		until := ""
		if e.Until > 0 {
			until = fmt.Sprintf(", up to %d", e.Until)
		}
		fmt.Fprintf(&b, "sequence %d at %d%s: %s (%s)\n", e.Seq, e.Pos, until, showTokens(e.Tokens),
			map[model.Want]string{model.WantNone: "no logits", model.WantLast: "last", model.WantAll: "all"}[e.Want])
	}
	return strings.TrimSuffix(b.String(), "\n")
}
