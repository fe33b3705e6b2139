package chat

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// answer is the result of a parser.
type answer struct {
	Reasoning, Text string
	Calls           []parsedCall
}

type parsedCall struct {
	Name, Arguments string
	Ended           bool
}

// read feeds the parts of an answer to a parser.
func read(t *testing.T, p *Parser, parts ...string) (a answer) {
	take := func(d Delta) {
		a.Reasoning += d.Reasoning
		a.Text += d.Text
		for _, c := range d.Calls {
			if c.Begun {
				require.Equal(t, len(a.Calls), c.Index)
				a.Calls = append(a.Calls, parsedCall{Name: c.Name})
			}
			require.Less(t, c.Index, len(a.Calls))
			require.Equal(t, len(a.Calls)-1, c.Index)
			last := &a.Calls[c.Index]
			require.False(t, last.Ended && c.Arguments != "", "arguments after the end")
			last.Arguments += c.Arguments
			last.Ended = last.Ended || c.Ended
		}
	}
	for _, s := range parts {
		take(p.Push(s))
	}
	take(p.Flush())
	return a
}

// readAll reads a text as a whole, then cut at every place, then in single bytes.
func readAll(t *testing.T, f *Format, c *Conversation, text string) answer {
	t.Helper()
	want := read(t, f.Parser(c), text)
	for i := range len(text) {
		require.Equal(t, want, read(t, f.Parser(c), text[:i], text[i:]), "cut at byte %d: %q", i, text[:i])
	}
	require.Equal(t, want, read(t, f.Parser(c), strings.Split(text, "")...))
	return want
}

var offered = Conversation{Options: Options{Functions: []Function{
	{Name: "Read", Parameters: json.RawMessage(`{"type":"object","properties":{"path":{"type":"string"},"n":{"type":"integer"},"x":{}}}`)},
	{Name: "ls"},
}}}

func dsmlBlock(body string) string {
	return "<｜DSML｜tool_calls>\n" + body + "\n</｜DSML｜tool_calls>"
}

func invoke(name string, parameters ...string) string {
	return "<｜DSML｜invoke name=\"" + name + "\">\n" + strings.Join(parameters, "\n") + "\n</｜DSML｜invoke>"
}

func parameterOf(name, isString, value string) string {
	return "<｜DSML｜parameter name=\"" + name + "\" string=\"" + isString + "\">" + value + "</｜DSML｜parameter>"
}

func TestParserDSML(t *testing.T) {
	readA := parsedCall{"Read", `{"path": "a"}`, true}
	pathA := parameterOf("path", "true", "a")
	for _, c := range []struct {
		name     string
		thinking bool
		text     string
		want     answer
	}{
		{"text", false, "Hi <b> & </b>\n", answer{Text: "Hi <b> & </b>\n"}},
		{"reasoning", true, "Hm.\n</think>\n\nHi", answer{Reasoning: "Hm.\n", Text: "\n\nHi"}},
		{"only reasoning", true, "Hm. <", answer{Reasoning: "Hm. <"}},
		{"markers again", true, "a<think>b</think>c</think>d", answer{Reasoning: "ab", Text: "cd"}},
		{"begins to reason", false, "<think>a</think>b", answer{Reasoning: "a", Text: "b"}},
		{"a call", false, "I read.\n\n" + dsmlBlock(invoke("Read", pathA)), answer{Text: "I read.", Calls: []parsedCall{readA}}},
		{"newlines that are text", false, "a\n\nb\n", answer{Text: "a\n\nb\n"}},
		{"inside the reasoning", true, "Hm.\n\n" + dsmlBlock(invoke("Read", pathA)), answer{Reasoning: "Hm.\n\n", Calls: []parsedCall{readA}}},
		{"two calls", false, dsmlBlock(invoke("Read", pathA) + "\n" + invoke("ls")), answer{Calls: []parsedCall{readA, {"ls", "{}", true}}}},
		{"no space", false, "<｜DSML｜tool_calls><｜DSML｜invoke name=\"Read\">" + pathA + "</｜DSML｜invoke></｜DSML｜tool_calls>", answer{Calls: []parsedCall{readA}}},
		{"after the block", false, dsmlBlock(invoke("ls")) + "\nDone <b>", answer{Calls: []parsedCall{{"ls", "{}", true}}}},
		{"types", false, dsmlBlock(invoke("Read", parameterOf("path", "true", "1\"\\\n<a></b>"), parameterOf("n", "false", " 7 "), parameterOf("x", "false", `[1,{"a":"</"}]`))),
			answer{Calls: []parsedCall{{"Read", `{"path": "1\"\\\n<a></b>", "n": 7, "x": [1,{"a":"</"}]}`, true}}}},
		{"a shell", false, dsmlBlock(invoke("Read", parameterOf("path", "true", "ls 2>&1 <<E </parameter> </invoke> <｜ </｜DSM"))),
			answer{Calls: []parsedCall{{"Read", `{"path": "ls 2>&1 <<E </parameter> </invoke> <｜ </｜DSM"}`, true}}}},
		{"no JSON", false, dsmlBlock(invoke("Read", parameterOf("x", "false", "a b"))), answer{Calls: []parsedCall{{"Read", `{"x": "a b"}`, true}}}},
		{"a number that is a string", false, dsmlBlock(invoke("Read", parameterOf("path", "false", "5"))), answer{Calls: []parsedCall{{"Read", `{"path": "5"}`, true}}}},
		{"a string that is a number", false, dsmlBlock(invoke("Read", parameterOf("n", "true", "5"))), answer{Calls: []parsedCall{{"Read", `{"n": 5}`, true}}}},
		{"all arguments in one", false, dsmlBlock(invoke("Read", parameterOf("arguments", "true", `{"path":"a","n":1}`))), answer{Calls: []parsedCall{{"Read", `{"path": "a", "n": 1}`, true}}}},
		{"one that is called so", false, dsmlBlock(invoke("ls", parameterOf("input", "true", `a`))), answer{Calls: []parsedCall{{"ls", `{"input": "a"}`, true}}}},
		{"a parameter twice", false, dsmlBlock(invoke("Read", pathA, parameterOf("path", "true", "b"))), answer{Calls: []parsedCall{readA}}},
		{"an unknown name", false, "x\n\n" + dsmlBlock(invoke("rm")), answer{Text: "x\n\n" + dsmlBlock(invoke("rm"))}},
		{"an unknown name later", false, dsmlBlock(invoke("Read", pathA) + "\n" + invoke("rm")), answer{Calls: []parsedCall{readA}}},
		{"V4.1", false, "<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"Read\">\n<｜DSML｜ parameter name=\"path\" string=\"true\">a</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n</｜DSML｜ calls>", answer{Calls: []parsedCall{readA}}},
		{"V3.2", false, strings.ReplaceAll(dsmlBlock(invoke("Read", pathA)), "tool_calls", "function_calls"), answer{Calls: []parsedCall{readA}}},

		{"cut in a value", false, "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"Read\">\n<｜DSML｜parameter name=\"path\" string=\"true\">ab</｜DS", answer{Calls: []parsedCall{{"Read", `{"path": "ab`, false}}}},
		{"cut in a tag", false, "Hi\n\n<｜DSML｜tool_calls>\n<｜DSML｜invo", answer{Text: "Hi"}},
		{"cut before the parameters", false, "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"Read\">", answer{Calls: []parsedCall{{"Read", "", false}}}},
		{"cut between calls", false, "<｜DSML｜tool_calls>\n" + invoke("Read", pathA) + "\n", answer{Calls: []parsedCall{readA}}},

		{"toolcalls", false, strings.ReplaceAll(dsmlBlock(invoke("Read", pathA)), "tool_calls", "toolcalls"), answer{Calls: []parsedCall{readA}}},
		{"tool_ccalls", false, strings.ReplaceAll(dsmlBlock(invoke("Read", pathA)), "tool_calls", "tool_ccalls"), answer{Calls: []parsedCall{readA}}},
		{"tool_use", false, strings.ReplaceAll(dsmlBlock(invoke("Read", pathA)), "tool_calls", "tool_use"), answer{Calls: []parsedCall{readA}}},
		{"inv", false, strings.ReplaceAll(dsmlBlock(invoke("Read", pathA)+invoke("ls")), "/｜DSML｜invoke", "/｜DSML｜inv"), answer{Calls: []parsedCall{readA, {"ls", "{}", true}}}},
		{"double bars", false, strings.ReplaceAll(dsmlBlock(invoke("Read", pathA)), "｜DSML｜", "｜｜DSML｜｜"), answer{Calls: []parsedCall{readA}}},
		{"ASCII bars", false, strings.ReplaceAll(dsmlBlock(invoke("Read", pathA)), "｜DSML｜", "|DSML|"), answer{Calls: []parsedCall{readA}}},
		{"no marker", false, strings.ReplaceAll(dsmlBlock(invoke("Read", pathA)), "｜DSML｜", ""), answer{Calls: []parsedCall{readA}}},
		{"no block", false, invoke("Read", pathA), answer{Calls: []parsedCall{readA}}},
		{"the name as a tag", false, "<｜DSML｜tool_calls>\n<｜DSML｜Read>\n" + pathA + "\n</｜DSML｜Read>", answer{Calls: []parsedCall{readA}}},
		{"JSON in a fence", false, "<｜DSML｜toolcall>Read ```json\n{\"path\": \"a\"}\n```</｜DSML｜toolcall>", answer{Calls: []parsedCall{readA}}},
		{"the block ends before the call", false, "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"Read\">\n" + pathA + "\n</｜DSML｜tool_calls>x", answer{Calls: []parsedCall{readA}}},
		{"a value does not end", false, "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"Read\">\n<｜DSML｜parameter name=\"path\" string=\"true\">a<｜DSML｜parameter name=\"n\" string=\"false\">1</｜DSML｜parameter><｜DSML｜invoke name=\"ls\"></｜DSML｜tool_calls>",
			answer{Calls: []parsedCall{{"Read", `{"path": "a", "n": 1}`, true}, {"ls", "{}", true}}}},
		{"HTML with the name of a function", false, `<input name="Read"> <Read> <invoke>`, answer{Text: `<input name="Read"> <Read> <invoke>`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			conversation := offered
			conversation.Thinking = c.thinking
			require.Equal(t, c.want, readAll(t, format(t, "v4"), &conversation, c.text))
		})
	}
	// Without offered functions there are no calls.
	text := dsmlBlock(invoke("Read", pathA))
	require.Equal(t, answer{Text: text}, readAll(t, format(t, "v4"), &Conversation{}, text))
}

func TestParserJSON(t *testing.T) {
	readA := parsedCall{"Read", `{"path":"a}<｜\"{"}`, true}
	object := readA.Arguments
	v31 := "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>Read<｜tool▁sep｜>" + object + "<｜tool▁call▁end｜><｜tool▁call▁begin｜>ls<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
	v3 := "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>Read\n```json\n" + object + "\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>ls\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
	kimi := "<|tool_calls_section_begin|><|tool_call_begin|>functions.Read:0<|tool_call_argument_begin|>" + object + "<|tool_call_end|><|tool_call_begin|>functions.ls:1<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>"
	both := answer{Text: "Hi", Calls: []parsedCall{readA, {"ls", "{}", true}}}
	for _, c := range []struct {
		name, format, text string
		want               answer
	}{
		{"V3.1", "v3.1", "Hi\n\n" + v31, both},
		{"V3.1 and more", "v3.1", "Hi" + v31 + "more", both},
		{"V3.1 without the outer markers", "v3.1", "Hi<｜tool▁call▁begin｜>Read<｜tool▁sep｜>" + object + "<｜tool▁call▁begin｜>ls<｜tool▁sep｜>{}", both},
		{"V3.1 no arguments", "v3.1", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>ls<｜tool▁sep｜><｜tool▁call▁end｜><｜tool▁calls▁end｜>", answer{Calls: []parsedCall{{"ls", "{}", true}}}},
		{"V3.1 cut", "v3.1", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>Read<｜tool▁sep｜>{\"path\":\"a", answer{Calls: []parsedCall{{"Read", `{"path":"a`, false}}}},
		{"V3.1 not closed", "v3.1", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>Read<｜tool▁sep｜>{\"n\":1<｜tool▁call▁end｜><｜tool▁calls▁end｜>", answer{Calls: []parsedCall{{"Read", `{"n":1`, false}}}},
		{"V3.1 unknown", "v3.1", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>rm<｜tool▁sep｜>{}", answer{Text: "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>rm<｜tool▁sep｜>{}"}},
		{"V3.1 cut in the head", "v3.1", "Hi<｜tool▁calls▁begin｜><｜tool▁call", answer{Text: "Hi"}},
		{"V3", "v3", "Hi" + v3, both},
		{"V3 without a fence's end", "v3", "Hi" + strings.ReplaceAll(v3, "\n```<", "<"), both},
		{"V3 without markers' ends", "v3", "Hi" + strings.ReplaceAll(v3, "<｜tool▁call▁end｜>", ""), both},
		{"Kimi K2", "kimi-k2", "Hi" + kimi, both},
		{"Kimi K2 thinks", "kimi-k2-thinking", "<think>Hm.</think>Hi" + kimi, answer{Reasoning: "Hm.", Text: "Hi", Calls: both.Calls}},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.want, readAll(t, format(t, c.format), &offered, c.text))
		})
	}
}

func TestParserGLM(t *testing.T) {
	call := func(name string, arguments ...string) string {
		text := "<tool_call>" + name
		for i := 0; i < len(arguments); i += 2 {
			text += "<arg_key>" + arguments[i] + "</arg_key><arg_value>" + arguments[i+1] + "</arg_value>"
		}
		return text + "</tool_call>"
	}
	conversation := Conversation{Options: Options{Functions: []Function{
		{Name: "Read", Parameters: json.RawMessage(`{"type":"object","properties":{"path":{"type":"string"},"n":{"type":"integer"},"x":{},"maybe":{"anyOf":[{"type":"string"},{"type":"null"}]},"mode":{"enum":["3",4]}}}`)},
		{Name: "ls"},
	}}}
	readA := parsedCall{"Read", `{"path": "a"}`, true}
	one := func(arguments string) answer { return answer{Calls: []parsedCall{{"Read", arguments, true}}} }
	for _, c := range []struct {
		name, text string
		want       answer
	}{
		{"text", "Hi <b> <tool> & </tool_call><arg_key>\n", answer{Text: "Hi <b> <tool> & </tool_call><arg_key>\n"}},
		{"a call", "I read.\n" + call("Read", "path", "a"), answer{Text: "I read.", Calls: []parsedCall{readA}}},
		{"two calls", call("Read", "path", "a") + "\n" + call("ls"), answer{Calls: []parsedCall{readA, {"ls", "{}", true}}}},
		{"after the calls", call("ls") + "\nDone <b> <tool_call>rm</tool_call>", answer{Calls: []parsedCall{{"ls", "{}", true}}}},
		{"another after text", call("ls") + "and\n" + call("Read", "path", "a"), answer{Calls: []parsedCall{{"ls", "{}", true}, readA}}},
		{"GLM-4.5's lines", "<tool_call>Read\n<arg_key>path</arg_key>\n<arg_value>a</arg_value>\n</tool_call>", one(readA.Arguments)},
		{"a text as it is", call("Read", "path", " \"5\" </tool_call> </arg_key> <arg_value> </arg_valu\n\\"), one(`{"path": " \"5\" </tool_call> </arg_key> <arg_value> </arg_valu\n\\"}`)},
		{"a number as a text", call("Read", "path", "5"), one(`{"path": "5"}`)},
		{"a number", call("Read", "n", " 7 "), one(`{"n": 7}`)},
		{"no number", call("Read", "n", "many"), one(`{"n": "many"}`)},
		{"JSON", call("Read", "x", `{"a":[1,"<"]}`), one(`{"x": {"a":[1,"<"]}}`)},
		{"what may be all", call("Read", "x", " a "), one(`{"x": " a "}`)},
		{"quotes that belong to a text", call("Read", "x", `"a"`), one(`{"x": "\"a\""}`)},
		{"null", call("Read", "maybe", "null"), one(`{"maybe": null}`)},
		{"a text that may be null", call("Read", "maybe", "5"), one(`{"maybe": "5"}`)},
		{"one of a list", call("Read", "mode", "3"), one(`{"mode": "3"}`)},
		{"another of the list", call("Read", "mode", "4"), one(`{"mode": 4}`)},
		{"of no schema", call("ls", "a", "1", "b", "c"), answer{Calls: []parsedCall{{"ls", `{"a": 1, "b": "c"}`, true}}}},
		{"an argument twice", call("Read", "path", "a", "path", "b", "n", "1", "n", "2"), one(`{"path": "a", "n": 1}`)},
		{"a key without a value", "<tool_call>Read<arg_key>n</arg_key><arg_key>path</arg_key><arg_value>a</arg_value></tool_call>", one(readA.Arguments)},
		{"an unknown name", "x" + call("rm", "a", "b"), answer{Text: "x" + call("rm", "a", "b")}},
		{"no call", "a <tool_call> is a <b>tag</b>", answer{Text: "a <tool_call> is a <b>tag</b>"}},
		{"reasons by itself", "<think>Hm.</think>\n" + call("ls"), answer{Reasoning: "Hm.", Calls: []parsedCall{{"ls", "{}", true}}}},

		{"cut in a value", "<tool_call>Read<arg_key>path</arg_key><arg_value>ab</arg", answer{Calls: []parsedCall{{"Read", `{"path": "ab`, false}}}},
		{"cut in a number", "<tool_call>Read<arg_key>n</arg_key><arg_value>1", answer{Calls: []parsedCall{{"Read", "", false}}}},
		{"cut in a key", "<tool_call>Read<arg_key>pa", answer{Calls: []parsedCall{{"Read", "", false}}}},
		{"cut after an argument", "<tool_call>Read<arg_key>path</arg_key><arg_value>a</arg_value>", answer{Calls: []parsedCall{{"Read", `{"path": "a"`, false}}}},
		{"cut in the name", "Hi\n<tool_call>Re", answer{Text: "Hi"}},
		{"cut between calls", call("ls") + "\n<tool_call>Re", answer{Calls: []parsedCall{{"ls", "{}", true}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.want, readAll(t, format(t, "glm-4.7"), &conversation, c.text))
			state, whole := format(t, "glm-4.7").Parser(&conversation), format(t, "glm-4.7").Parser(&conversation)
			state.StateOnly = true
			for i := range len(c.text) {
				state.Push(c.text[i : i+1])
				whole.Push(c.text[i : i+1])
				require.Equal(t, []bool{whole.Answering(), whole.Reasoning()}, []bool{state.Answering(), state.Reasoning()}, "%q", c.text[:i+1])
			}
		})
	}
	read := conversation.Functions[0].members.members
	require.NotNil(t, read)
	fresh := Conversation{Options: Options{Functions: []Function{{Name: "Read", Parameters: conversation.Functions[0].Parameters}}}}
	state := format(t, "glm-4.7").Parser(&fresh)
	state.StateOnly = true
	state.Push(call("Read", "path", "a"))
	require.Nil(t, fresh.Functions[0].members.members, "it asks no schema")
	readAll(t, format(t, "glm-4.7"), &conversation, call("Read", "path", "a"))
	require.Same(t, read, conversation.Functions[0].members.members, "a schema is read once for all answers")
	conversation.Thinking = true
	require.Equal(t, answer{Reasoning: "Hm.", Text: "Yes", Calls: []parsedCall{readA}}, readAll(t, format(t, "glm-5.2"), &conversation, "Hm.</think>Yes"+call("Read", "path", "a")))
	text := call("ls")
	require.Equal(t, answer{Text: text}, readAll(t, format(t, "glm-4.7"), &Conversation{}, text), "no functions, no calls")
}

// writtenBy returns what the template writes of an assistant's turn after a question. ok is
// false if the turn does not continue the prompt for an answer.
func writtenBy(t *testing.T, f *Format, c Conversation, m Message) (text string, ok bool) {
	c.Messages = []Message{{Role: User, Content: "Q"}}
	before := spelled(t, f.Name, c)
	c.Messages, c.Ending = append(c.Messages, m), Complete
	text, ok = strings.CutPrefix(spelled(t, f.Name, c), before)
	return strings.TrimSuffix(strings.TrimSuffix(text, kimiEnd), markEOS), ok
}

// What a template writes of an assistant's turn, the parser reads.
func TestParserIsTheInverseOfTheTemplate(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 9))
	words := []string{"a", " ", "<", ">", "</", "\"", "\\", "\n", "｜", "DSML", "漢", "{", "}", "```", "=", "</parameter>", "<b>", "'", "5"}
	text := func() string {
		var b strings.Builder
		for range r.IntN(6) {
			b.WriteString(words[r.IntN(len(words))])
		}
		return b.String()
	}
	for _, f := range Formats {
		if f.markup == nil {
			continue
		}
		for range 300 {
			c := offered
			c.Thinking = f.Thinks(r.IntN(2) == 0)
			m := Message{Role: Assistant, Content: strings.Trim(strings.ReplaceAll("x"+text(), "<", ""), "\n"), Reasoning: "r"}
			if f.markup == (glmMarkup{}) { // it strips answers, and has reasoning in chat mode too
				m.Content = strings.TrimSpace(m.Content)
				if !c.Thinking {
					m.Reasoning = ""
				}
			}
			for range 1 + r.IntN(3) {
				arguments := map[string]any{"path": text(), "n": r.IntN(9), "x": []any{text(), map[string]any{text(): nil}}}
				if r.IntN(2) == 0 {
					delete(arguments, "x")
				}
				b, err := json.Marshal(arguments)
				require.NoError(t, err)
				m.Calls = append(m.Calls, Call{Name: "Read", Arguments: string(b)})
			}
			written, ok := writtenBy(t, f, c, m)
			if !ok {
				require.Contains(t, []string{"r1", "v3.1"}, f.Name) // their history has no reasoning
				continue
			}
			n := r.IntN(len(written))
			got := read(t, f.Parser(&c), written[:n], written[n:])
			require.Equal(t, m.Content, got.Text, "%s: %q", f.Name, written)
			require.Len(t, got.Calls, len(m.Calls))
			for i, call := range got.Calls {
				require.True(t, call.Ended)
				require.JSONEq(t, m.Calls[i].Arguments, call.Arguments, "%s: %q", f.Name, written)
			}
		}
	}
}

// An answer is the same however it is cut, and arguments of a call that has ended are
// JSON.
func FuzzParser(f *testing.F) {
	f.Add(uint8(0), "Hi\n\n"+dsmlBlock(invoke("Read", parameterOf("path", "true", "a"))), uint16(7))
	f.Add(uint8(1), "a</think><｜DSML｜toolcall>Read ```json\n{\"path\": \"a\"}\n```", uint16(30))
	f.Add(uint8(4), "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>Read<｜tool▁sep｜>{\"a\":[1]}<｜tool▁call▁end｜>", uint16(50))
	f.Add(uint8(18), "a<tool_call>Read<arg_key>x</arg_key><arg_value>[1]</arg_value></tool_call>\n<tool_call>ls</tool_call>", uint16(40))
	f.Add(uint8(14), "<|tool_calls_section_begin|><|tool_call_begin|>functions.ls:0<|tool_call_argument_begin|>{}", uint16(3))
	f.Fuzz(func(t *testing.T, form uint8, text string, cut uint16) {
		format := Formats[int(form>>1)%len(Formats)]
		c := offered
		c.Thinking = form&1 != 0
		n := int(cut) % (len(text) + 1)
		whole := read(t, format.Parser(&c), text)
		require.Equal(t, whole, read(t, format.Parser(&c), text[:n], text[n:]), fmt.Sprintf("%q, %q", text[:n], text[n:]))
		for _, call := range whole.Calls {
			require.Contains(t, []string{"Read", "ls"}, call.Name)
		}
		require.LessOrEqual(t, len(whole.Text)+len(whole.Reasoning), len(text))
	})
}
