package tokenizer

import "context"

// Encode returns the ids of a text. With special, added tokens (control and user-defined
// ones, such as "<｜User｜>") that occur literally in the text become their ids; otherwise
// they are ordinary text, as untrusted text requires. BOS is not added.
//
// The time is roughly linear in the length for any text.
func (t *Tokenizer) Encode(text string, special bool) []int32 {
	ids, _ := t.EncodeContext(context.Background(), text, special)
	return ids
}

// EncodeContext is Encode for untrusted text: once ctx has ended, it only skips
// over the rest of the text and returns ctx's error.
func (t *Tokenizer) EncodeContext(ctx context.Context, text string, special bool) ([]int32, error) {
	if err := ctx.Err(); err != nil || text == "" {
		return nil, err
	}
	e := encoder{
		merger: merger{t: t, poll: poll{ctx: ctx}},
		ids:    make([]int32, 0, len(text)/4+8),
		known:  map[string]span{},
	}
	if !special {
		t.split(text, e.word)
		return e.result()
	}
	start := 0
	for i := 0; i < len(text); {
		id, n := t.added.match(text[i:])
		if n == 0 {
			i++
			continue
		}
		t.split(text[start:i], e.word)
		e.ids = append(e.ids, id)
		i += n
		start = i
	}
	t.split(text[start:], e.word)
	return e.result()
}

// poll checks a context now and then; checking it for each word would cost more
// than the word.
type poll struct {
	ctx   context.Context // nil: never ends
	calls uint
	err   error // ctx's error, once it has been seen
}

// pollInterval is the number of calls of ended per check of the context.
const pollInterval = 1024

// ended reports whether the context had ended at the last check.
func (p *poll) ended() bool {
	if p.calls++; p.calls%pollInterval == 0 && p.err == nil && p.ctx != nil {
		p.err = p.ctx.Err()
	}
	return p.err != nil
}

func (e *encoder) result() ([]int32, error) {
	if e.poll.err != nil {
		return nil, e.poll.err
	}
	return e.ids, nil
}

// encoder is one run of Encode. The tokens of a repeated word are copied from
// its first occurrence.
type encoder struct {
	merger
	ids   []int32
	known map[string]span // words of at most shortWord bytes
}

// span is the range of a word's tokens in encoder.ids.
type span struct{ start, end int }

func (e *encoder) word(w string) {
	if w == "" || e.poll.ended() {
		return
	}
	if at, ok := e.known[w]; ok {
		e.ids = append(e.ids, e.ids[at.start:at.end]...)
		return
	}
	start := len(e.ids)
	e.ids = e.appendWord(e.ids, w)
	if len(w) <= shortWord {
		e.known[w] = span{start, len(e.ids)}
	}
}

// trie finds the longest added token at a position of a text. The zero value is
// empty. Node 0 is the root.
type trie struct {
	first [256]bool       // bytes that a token begins with: most are none
	edges map[edge]int32  // to the next node
	ids   map[int32]int32 // token that ends at a node
	nodes int32
}

// edge is a node and the byte by which the edge leaves it.
type edge struct {
	node int32
	b    byte
}

func (t *trie) insert(text string, id int32) {
	if text == "" {
		return // would match everywhere
	}
	if t.edges == nil {
		t.edges, t.ids = map[edge]int32{}, map[int32]int32{}
	}
	t.first[text[0]] = true
	node := int32(0)
	for i := range len(text) {
		to, ok := t.edges[edge{node, text[i]}]
		if !ok {
			t.nodes++
			to = t.nodes
			t.edges[edge{node, text[i]}] = to
		}
		node = to
	}
	if _, twice := t.ids[node]; !twice {
		t.ids[node] = id
	}
}

// match returns the longest token that is a prefix of s, and its length; 0 if none.
func (t *trie) match(s string) (id int32, n int) {
	if s == "" || !t.first[s[0]] {
		return 0, 0
	}
	node := int32(0)
	for i := range len(s) {
		to, ok := t.edges[edge{node, s[i]}]
		if !ok {
			break
		}
		node = to
		if found, ok := t.ids[node]; ok {
			id, n = found, i+1
		}
	}
	return id, n
}
