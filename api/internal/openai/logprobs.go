package openai

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"ringmaster/api/dialect"
	"ringmaster/api/run"
	"ringmaster/engine"
)

// chatLogprobs is the logprobs object of a chat choice. Reasoning has its own
// list, as in DeepSeek's API.
type chatLogprobs struct {
	Content   []chatLogprob `json:"content"`
	Refusal   *struct{}     `json:"refusal"` // always null: OpenAI's clients expect the member
	Reasoning []chatLogprob `json:"reasoning_content,omitempty"`
}

type chatLogprob struct {
	tokenLogprob
	Top []tokenLogprob `json:"top_logprobs"`
}

type tokenLogprob struct {
	Token   string  `json:"token"`
	Logprob float64 `json:"logprob"`
	Bytes   []int   `json:"bytes"` // []byte would be encoded as base64
}

// newChatLogprob converts a token to the form of chat completions.
func newChatLogprob(s *dialect.Service, t run.Token) chatLogprob {
	l := chatLogprob{tokenLogprob: newTokenLogprob(s, t.ID, t.Bytes, t.Logprob), Top: make([]tokenLogprob, len(t.Top))}
	for i, a := range t.Top {
		l.Top[i] = newTokenLogprob(s, a.ID, a.Bytes, a.Logprob)
	}
	return l
}

func newTokenLogprob(s *dialect.Service, id int32, b []byte, logprob float64) tokenLogprob {
	l := tokenLogprob{Token: strings.ToValidUTF8(name(s, id, b), "\uFFFD"), Logprob: dialect.Logprob(logprob), Bytes: make([]int, len(b))}
	for i, c := range b {
		l.Bytes[i] = int(c)
	}
	return l
}

// name returns the text of a token, or the name of a control token, which has no text.
func name(s *dialect.Service, id int32, b []byte) string {
	if len(b) == 0 {
		return s.Tokenizer.Text(id)
	}
	return string(b)
}

// textLogprobs is the logprobs object of a text completion: four parallel lists
// with an item for each token.
type textLogprobs struct {
	Tokens        []string             `json:"tokens"`
	TokenLogprobs []*float64           `json:"token_logprobs"`
	TopLogprobs   []map[string]float64 `json:"top_logprobs"`
	TextOffset    []int                `json:"text_offset"`
}

// textLogprober builds textLogprobs incrementally. Offsets count characters
// (code points) from the start of the prompt, even if it is not echoed.
type textLogprober struct {
	service *dialect.Service
	top     bool // alternatives were requested
	offset  int
}

// add returns the entries of the next tokens.
func (p *textLogprober) add(tokens []engine.Token) *textLogprobs {
	l := &textLogprobs{Tokens: []string{}, TokenLogprobs: []*float64{}, TopLogprobs: []map[string]float64{}, TextOffset: []int{}}
	for _, t := range tokens {
		v := dialect.Logprob(t.Logprob)
		p.append(l, t, &v)
	}
	return l
}

// addPrompt returns the entries of an echoed prompt. The first token of a
// sequence has no predecessor and therefore no probability.
func (p *textLogprober) addPrompt(tokens []engine.Token, fromStart bool) *textLogprobs {
	if !fromStart || len(tokens) == 0 {
		return p.add(tokens)
	}
	l := p.add(tokens[:1])
	l.TokenLogprobs[0], l.TopLogprobs[0] = nil, nil
	return l.join(p.add(tokens[1:]))
}

func (p *textLogprober) append(l *textLogprobs, t engine.Token, v *float64) {
	l.Tokens = append(l.Tokens, byteName(p.service, t.ID, t.Bytes))
	l.TokenLogprobs = append(l.TokenLogprobs, v)
	l.TextOffset = append(l.TextOffset, p.offset)
	p.offset += characters(t.Bytes)
	var top map[string]float64
	if p.top {
		top = make(map[string]float64, len(t.Top)+1)
		for _, a := range t.Top {
			name := byteName(p.service, a.ID, a.Bytes)
			if _, taken := top[name]; !taken { // tokens may share a name; the most likely comes first
				top[name] = dialect.Logprob(a.Logprob)
			}
		}
		// OpenAI always includes the token itself.
		top[byteName(p.service, t.ID, t.Bytes)] = *v
	}
	l.TopLogprobs = append(l.TopLogprobs, top)
}

// join appends m to l; either may be nil.
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

// byteName returns the name of a token as a JSON key. Incomplete characters are written
// as bytes:\xe2\x82, the form of OpenAI's older API, so that they stay distinct.
func byteName(s *dialect.Service, id int32, b []byte) string {
	if utf8.Valid(b) {
		return name(s, id, b)
	}
	var name strings.Builder
	name.WriteString("bytes:")
	for _, c := range b {
		fmt.Fprintf(&name, "\\x%02x", c)
	}
	return name.String()
}

// characters counts the characters that start in b; b may begin or end inside a
// character.
func characters(b []byte) int {
	n := 0
	for _, c := range b {
		if c&0xC0 != 0x80 {
			n++
		}
	}
	return n
}
