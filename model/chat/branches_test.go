package chat

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/model/tokenizer"
)

// encoded returns the ids of a conversation and its branches, which must be strictly
// ascending lengths of it.
func encoded(t *testing.T, f *Format, e Encoder, c Conversation) (ids []int32, branches []int) {
	t.Helper()
	ids, branches, err := f.Encode(t.Context(), e, &c)
	require.NoError(t, err)
	requireBranches(t, ids, branches)
	return ids, branches
}

func requireBranches(t *testing.T, ids []int32, branches []int) {
	t.Helper()
	before := 0
	for _, n := range branches {
		require.Greater(t, n, before)
		before = n
	}
	require.LessOrEqual(t, before, len(ids))
}

// The prompt of every family has branches where the system messages with the functions end,
// and where each turn ends.
func TestBranches(t *testing.T) {
	tok := v4(t)
	c := Conversation{Messages: []Message{
		{Role: System, Content: "Be brief."}, {Role: System, Content: "No jokes."},
		{Role: User, Content: "Hi"},
		{Role: Assistant, Content: "Hello", Calls: []Call{{ID: "1", Name: "f", Arguments: "{}"}}},
		{Role: Tool, CallID: "1", Content: "22"},
		{Role: Assistant, Content: "It is 22."},
		{Role: User, Content: "Why?"},
	}}
	v3 := func(open string) []string {
		return []string{"<｜begin▁of▁sentence｜>Be brief.\n\nNo jokes.", "<｜User｜>Hi", "<｜Assistant｜>Hello<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜><｜end▁of▁sentence｜>",
			"Use the results below to formulate an answer to the user question unless additional information is needed.<｜tool▁outputs▁begin｜><｜tool▁output▁begin｜>22<｜tool▁output▁end｜><｜tool▁outputs▁end｜>",
			"It is 22.<｜end▁of▁sentence｜>", "<｜User｜>Why?", open}
	}
	glm := func(open string) []string {
		return []string{"[gMASK]<sop><|system|>Be brief.<|system|>No jokes.", "<|user|>Hi", "<|assistant|>" + open + "Hello<tool_call>f</tool_call>",
			"<|observation|><tool_response>22</tool_response>", "<|assistant|>" + open + "It is 22.", "<|user|>Why?", "<|assistant|>" + open}
	}
	kimi := func(think string) []string {
		return []string{"<|im_system|>system<|im_middle|>Be brief.<|im_end|><|im_system|>system<|im_middle|>No jokes.<|im_end|>", "<|im_user|>user<|im_middle|>Hi<|im_end|>",
			"<|im_assistant|>assistant<|im_middle|>" + think + "Hello<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|><|im_end|>",
			"<|im_system|>tool<|im_middle|>## Return of functions.f:0\n22<|im_end|>", "<|im_assistant|>assistant<|im_middle|>" + think + "It is 22.<|im_end|>",
			"<|im_user|>user<|im_middle|>Why?<|im_end|>", "<|im_assistant|>assistant<|im_middle|>"}
	}
	dsml := func(head, block string) []string {
		return []string{"<｜begin▁of▁sentence｜>" + head, "<｜User｜>Hi", "<｜Assistant｜></think>Hello\n\n<｜DSML｜" + block + ">\n<｜DSML｜invoke name=\"f\">\n\n</｜DSML｜invoke>\n</｜DSML｜" + block + "><｜end▁of▁sentence｜>",
			"<｜User｜><tool_result>22</tool_result>", "<｜Assistant｜></think>It is 22.<｜end▁of▁sentence｜>", "<｜User｜>Why?", "<｜Assistant｜></think>"}
	}
	v41 := dsml("<｜System｜>Be brief.<｜System｜>No jokes.", " calls")
	v41[2] = strings.ReplaceAll(v41[2], "invoke", " invoke")
	v32 := dsml("Be brief.No jokes.", "function_calls")
	// The answer follows the block of results without a marker, so only its end is exact.
	v32 = append(v32[:3], "\n\n<function_results>\n<result>22</result>\n</function_results>\n\n</think>It is 22.<｜end▁of▁sentence｜>", v32[5], v32[6])
	for name, want := range map[string][]string{
		"v4": dsml("Be brief.No jokes.", "tool_calls"), "v4.1": v41, "v3.2": v32,
		"v3": v3("<｜Assistant｜>"), "r1": v3("<｜Assistant｜><think>\n"),
		"v3.1": {"<｜begin▁of▁sentence｜>Be brief.\n\nNo jokes.", "<｜User｜>Hi",
			"<｜Assistant｜></think>Hello<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜><｜end▁of▁sentence｜>",
			"<｜tool▁output▁begin｜>22<｜tool▁output▁end｜>", "It is 22.<｜end▁of▁sentence｜>", "<｜User｜>Why?", "<｜Assistant｜></think>"},
		"kimi-k2": kimi(""), "kimi-k2-thinking": kimi("<think></think>"),
		"glm-4.7": glm("</think>"), "glm-5.1": glm("</think>"), "glm-5.2": glm("<think></think>"),
	} {
		ids, branches := encoded(t, format(t, name), tok, c)
		var parts []string
		from := 0
		for _, n := range append(branches, len(ids)) {
			parts = append(parts, raw(tok, ids[from:n]))
			from = n
		}
		require.Equal(t, want, parts, name)
	}

	// Words separate the turns of this format, and tokens may lie across their ends.
	c.Messages = append(c.Messages[1:3:3], c.Messages[5:]...)
	ids, branches := encoded(t, format(t, "plain"), tok, c)
	require.Len(t, branches, 1)
	require.Equal(t, "<｜begin▁of▁sentence｜>No jokes.\n\nUser: Hi\n\nAssistant: It is 22.<｜end▁of▁sentence｜>", raw(tok, ids[:branches[0]]))

	// An answer that the model continues has no branch at its end.
	for _, f := range Formats {
		c.Messages = []Message{{Role: User, Content: "Hi"}, {Role: Assistant, Content: "Hel"}}
		c.Ending = Continue
		ids, branches := encoded(t, f, tok, c)
		for _, n := range branches {
			require.Contains(t, raw(tok, ids[n:]), "Hel", f.Name)
		}
	}
}

// talk writes random conversations in which each message says something of its own.
type talk struct {
	r   *rand.Rand
	tok *tokenizer.Tokenizer
	n   int // messages so far
}

func (k *talk) message(role Role) Message {
	k.n++
	m := Message{Role: role, Content: fmt.Sprintf("%c%s message %d of the talk%s", 'A'+k.n%26, []string{"", " 漢字", "1", "\n"}[k.r.IntN(4)], k.n, []string{"", " ", "\n\n", "。", "12"}[k.r.IntN(5)])}
	if role == Assistant && k.r.IntN(2) == 0 {
		m.Reasoning = fmt.Sprintf("thought %d", k.n)
	}
	return m
}

// turn returns a question, perhaps calls and their results, and an answer.
func (k *talk) turn(tools bool) []Message {
	out := []Message{k.message(User)}
	for tools && k.r.IntN(2) == 0 {
		call := k.message(Assistant)
		var results []Message
		for i := range 1 + k.r.IntN(2) {
			id := fmt.Sprint(k.n, ".", i)
			call.Calls = append(call.Calls, Call{ID: id, Name: weather.Name, Arguments: fmt.Sprintf(`{"location":"place %d"}`, k.n)})
			result := k.message(Tool)
			result.CallID = id
			results = append(results, result)
		}
		out = append(append(out, call), results...)
	}
	answer := k.message(Assistant)
	if k.r.IntN(4) == 0 {
		answer.Sampled = k.tok.Encode(answer.Content, false)
	}
	if k.r.IntN(8) == 0 {
		answer.Content, answer.Sampled = "", []int32{}
	}
	return append(out, answer)
}

// other returns messages with the same roles and calls that say something else.
func (k *talk) other(messages []Message) []Message {
	out := append([]Message{}, messages...)
	for i := range out {
		m := &out[i]
		if m.Content != "" {
			m.Content = "other: " + m.Content
		}
		if m.Reasoning != "" {
			m.Reasoning = "other: " + m.Reasoning
		}
		if m.Sampled != nil {
			m.Sampled = k.tok.Encode(m.Content, false)
		}
	}
	return out
}

// Two conversations that begin with the same messages have the same branches in this
// beginning. Between the last of these branches and the first token that differs lies
// nothing that the shared messages say. A branch cuts the prompt's text between tokens.
func TestConversationsShareBranches(t *testing.T) {
	tok := v4(t)
	r := rand.New(rand.NewPCG(35, 1))
	for range 400 {
		f := Formats[r.IntN(len(Formats))]
		k := &talk{r: r, tok: tok}
		tools := f.markup != nil && r.IntN(2) == 0
		o := Options{Thinking: r.IntN(2) == 0, Effort: []string{"", "high", "max"}[r.IntN(3)]}
		if tools {
			o.Functions = []Function{weather}
		}
		if r.IntN(4) == 0 {
			o.Schema = []byte(`{"type":"object"}`)
		}
		var messages []Message
		systems := r.IntN(3)
		for range systems {
			messages = append(messages, k.message(System))
		}
		for range 1 + r.IntN(3) {
			messages = append(messages, k.turn(tools)...)
		}
		messages = append(messages, k.message(User))
		// Between two results, and between two system messages, there need not be a branch.
		at := systems + r.IntN(len(messages)-systems)
		for at > systems && messages[at-1].Role == Tool && messages[at].Role == Tool {
			at--
		}
		other := Conversation{append(messages[:at:at], k.other(messages[at:])...), o}
		a, branches := encoded(t, f, tok, Conversation{messages, o})
		b, others := encoded(t, f, tok, other)
		shared := 0
		for shared < min(len(a), len(b)) && a[shared] == b[shared] {
			shared++
		}
		common := func(branches []int) (out []int) {
			for _, n := range branches {
				if n <= shared {
					out = append(out, n)
				}
			}
			return out
		}
		both := common(branches)
		require.Equal(t, both, common(others), "%s", f.Name)
		if len(branches) > 0 {
			n := branches[r.IntN(len(branches))]
			require.Equal(t, a[:n], tok.Encode(raw(tok, a[:n]), true), f.Name)
			require.Equal(t, a[n:], tok.Encode(raw(tok, a[n:]), true), f.Name)
		}
		if at == 0 && !tools && o.Schema == nil ||
			f.Name == "plain" && (at == 0 || messages[at-1].Role != Assistant) ||
			f.Name == "v3.2" && at > 0 && messages[at-1].Role == Tool {
			continue // nothing is shared, or no marker follows it
		}
		require.NotEmpty(t, both, f.Name)
		last := both[len(both)-1]
		rest := raw(tok, a[last:shared])
		require.NotContains(t, rest, "of the talk", f.Name)
		require.NotContains(t, rest, "location", f.Name)
		if at == systems {
			require.Len(t, both, 1, "%s: the end of the system prompt", f.Name)
		}
	}
}

// A marker that the vocabulary lacks becomes text, so no branch lies before it.
func TestNoBranchWithinText(t *testing.T) {
	w := writer{}
	w.mark("a")
	w.branch() // what every prompt has
	w.text("b")
	w.branch()
	w.markup("p", "p")
	w.branch()
	w.mark("c")
	w.branch()
	w.text("d")
	w.branch()
	w.text("e")
	segments := w.done()
	require.Equal(t, []Segment{
		{Text: "a", Marker: true}, {Text: "b", Branch: true}, {Text: "p", Marker: true, Plain: true, Branch: true}, {Text: "c", Marker: true, Branch: true}, {Text: "de"},
	}, segments)
	require.Equal(t, []Segment{{Text: "a", Marker: true}, {Text: "bp", Branch: true}, {Text: "c", Marker: true, Branch: true}, {Text: "de"}},
		join(segments, func(string) bool { return false }))
}
