package api

import (
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"ringmaster/engine"
)

// leastLogprob stands for a probability of nothing: JSON has no infinity.
const leastLogprob = -9999

func finite(logprob float64) float64 {
	if math.IsNaN(logprob) || logprob < leastLogprob {
		return leastLogprob
	}
	return logprob
}

// chatLogprobs is the logprobs object of a chat choice. Reasoning stands in a
// list of its own, as in the API of DeepSeek.
type chatLogprobs struct {
	Content   []chatLogprob `json:"content"`
	Refusal   *struct{}     `json:"refusal"` // always null: OpenAI's clients ask for it
	Reasoning []chatLogprob `json:"reasoning_content,omitempty"`
}

type chatLogprob struct {
	tokenLogprob
	Top []tokenLogprob `json:"top_logprobs"`
}

type tokenLogprob struct {
	Token   string  `json:"token"`
	Logprob float64 `json:"logprob"`
	Bytes   []int   `json:"bytes"` // []byte would become base64
}

// chatLogprob is one token in the form of chat completions.
func (s *server) chatLogprob(t engine.Token) chatLogprob {
	l := chatLogprob{tokenLogprob: s.tokenLogprob(t.ID, t.Bytes, t.Logprob), Top: make([]tokenLogprob, len(t.Top))}
	for i, a := range t.Top {
		l.Top[i] = s.tokenLogprob(a.ID, a.Bytes, a.Logprob)
	}
	return l
}

func (s *server) tokenLogprob(id int32, b []byte, logprob float64) tokenLogprob {
	l := tokenLogprob{Token: strings.ToValidUTF8(s.name(id, b), "\uFFFD"), Logprob: finite(logprob), Bytes: make([]int, len(b))}
	for i, c := range b {
		l.Bytes[i] = int(c)
	}
	return l
}

// name is what a token shows, or for one that shows nothing what it is called.
func (s *server) name(id int32, b []byte) string {
	if len(b) == 0 {
		return s.Tokenizer.Text(id)
	}
	return string(b)
}

// textLogprobs is the logprobs object of a text completion: four lists with
// an item for each token.
type textLogprobs struct {
	Tokens        []string             `json:"tokens"`
	TokenLogprobs []*float64           `json:"token_logprobs"`
	TopLogprobs   []map[string]float64 `json:"top_logprobs"`
	TextOffset    []int                `json:"text_offset"`
}

// textLogprober makes textLogprobs piece by piece. Offsets count characters
// (code points) from the begin of the prompt, also when it is not echoed.
type textLogprober struct {
	server *server
	top    bool // alternatives are asked for
	offset int
}

func (p *textLogprober) add(tokens []engine.Token) *textLogprobs {
	l := &textLogprobs{Tokens: []string{}, TokenLogprobs: []*float64{}, TopLogprobs: []map[string]float64{}, TextOffset: []int{}}
	for _, t := range tokens {
		v := finite(t.Logprob)
		p.append(l, t, &v)
	}
	return l
}

// addPrompt adds the tokens of an echoed prompt. The very first token of a
// sequence follows nothing and has no probability.
func (p *textLogprober) addPrompt(tokens []engine.Token, fromStart bool) *textLogprobs {
	if !fromStart || len(tokens) == 0 {
		return p.add(tokens)
	}
	l := p.add(tokens[:1])
	l.TokenLogprobs[0], l.TopLogprobs[0] = nil, nil
	return l.join(p.add(tokens[1:]))
}

func (p *textLogprober) append(l *textLogprobs, t engine.Token, v *float64) {
	l.Tokens = append(l.Tokens, p.server.byteName(t.ID, t.Bytes))
	l.TokenLogprobs = append(l.TokenLogprobs, v)
	l.TextOffset = append(l.TextOffset, p.offset)
	p.offset += characters(t.Bytes)
	var top map[string]float64
	if p.top {
		top = make(map[string]float64, len(t.Top)+1)
		for _, a := range t.Top {
			name := p.server.byteName(a.ID, a.Bytes)
			if _, taken := top[name]; !taken { // the likeliest comes first
				top[name] = finite(a.Logprob)
			}
		}
		// The token itself is always told, as OpenAI does.
		top[p.server.byteName(t.ID, t.Bytes)] = *v
	}
	l.TopLogprobs = append(l.TopLogprobs, top)
}

// join puts m behind l; either may be nil.
func (l *textLogprobs) join(m *textLogprobs) *textLogprobs {
	if l == nil {
		return m
	}
	if m == nil {
		return l
	}
	l.Tokens = append(l.Tokens, m.Tokens...)
	l.TokenLogprobs = append(l.TokenLogprobs, m.TokenLogprobs...)
	l.TopLogprobs = append(l.TopLogprobs, m.TopLogprobs...)
	l.TextOffset = append(l.TextOffset, m.TextOffset...)
	return l
}

// byteName is the name of a token as a key: parts of a character are written
// as bytes:\xe2\x82, the form of OpenAI's older API, so that they stay apart.
func (s *server) byteName(id int32, b []byte) string {
	if utf8.Valid(b) {
		return s.name(id, b)
	}
	var name strings.Builder
	name.WriteString("bytes:")
	for _, c := range b {
		fmt.Fprintf(&name, "\\x%02x", c)
	}
	return name.String()
}

// characters counts the characters that begin in b, which may be cut anywhere.
func characters(b []byte) int {
	n := 0
	for _, c := range b {
		if c&0xC0 != 0x80 {
			n++
		}
	}
	return n
}
