// Package drafts guesses how an answer continues from texts that it may repeat: what the
// request has said itself, and others beside it. A guess is a draft: the engine runs its
// tokens behind the one that was sampled last, and keeps those that it would have sampled.
//
//	var t drafts.Texts
//	t.Beside(drafts.Prediction, ids) // a text that the answer may repeat
//	t.Add(prompt...)
//	t.Add(sampled)
//	g := t.Draft(16) // at most 16 tokens
package drafts

// Source says where a draft comes from.
type Source uint8

// The sources.
const (
	Text       Source = iota // the prompt and the answer, as they are or as JSON writes them
	Prediction               // a text that the client expects
	Group                    // other conversations of the request's cache group
	Grammar                  // the constraint of the answer leaves no other tokens
	Model                    // a block of the model that predicts further tokens
	Sources                  // their number
)

// String returns the name in metrics.
func (s Source) String() string {
	return [...]string{"text", "prediction", "group", "grammar", "model"}[s]
}

const (
	// Most is the most tokens of a draft.
	Most = 16
	// MostTexts is the most texts beside a request's own, because each draft searches all of
	// them.
	MostTexts = 32
)

// Guess is a draft.
type Guess struct {
	Tokens []int32
	Source Source
	// Match is how many tokens were equal before those of the draft; more make it likelier
	// that they are right.
	Match int
}

// Texts finds drafts for one request. One goroutine uses it.
type Texts struct {
	own    index
	beside []besideText
}

// besideText is a text beside the request's own.
type besideText struct {
	index
	source Source
}

// Beside adds a text that the answer may repeat, and none beyond MostTexts. Texts do not
// continue each other.
func (t *Texts) Beside(source Source, ids []int32) {
	if len(ids) <= least || len(t.beside) == MostTexts {
		return
	}
	t.beside = append(t.beside, besideText{index: index{ids: ids}, source: source})
}

// Add appends tokens of the request's own text.
func (t *Texts) Add(ids ...int32) { t.own.append(ids...) }

// Draft returns the tokens that followed the longest run of tokens that is equal to the end
// of the text: at most as many as are equal, because a short run often ends by chance.
// Among equal runs the request's own text comes first, and the last one in it. Long texts
// give drafts only after some calls.
func (t *Texts) Draft(most int) Guess {
	text := t.own.ids
	var from *index
	at, length, source, left := 0, 0, Text, atOnce
	// The end of the text itself is not in the table, because it would always be found.
	if t.own.extend(len(text)-1, &left) {
		from = &t.own
		at, length = t.own.find(text)
	}
	for i := range t.beside {
		b := &t.beside[i]
		if b.extend(len(b.ids), &left) {
			if a, n := b.find(text); n > length {
				from, at, length, source = &b.index, a, n, b.source
			}
		}
	}
	n := min(length, most, Most)
	if n <= 0 {
		return Guess{}
	}
	if from != &t.own {
		n = min(n, len(from.ids)-at)
	}
	out := make([]int32, n)
	for i := range out {
		if at+i < len(from.ids) {
			out[i] = from.ids[at+i]
		} else {
			out[i] = out[at+i-len(from.ids)] // the text repeats itself
		}
	}
	return Guess{Tokens: out, Source: source, Match: length}
}
