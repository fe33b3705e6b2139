package agents

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"ringmaster/api/apitest"
	"ringmaster/model"
)

const (
	content = "Hello from the ring,\n\"quoted\" & <b>bold</b>\n"
	done    = "The file is written."
	request = "Write the agreed text to the file "
	also    = " and to the file "
	please  = " please."
)

// play is what the model does: it writes the files that the user names, with the
// tool that the agent offers for it, all of them at once, and then says so. Whatever
// else it is asked, it says "Fine.".
type play struct {
	context int // tokens that a conversation may have
	limit   int // tokens of an answer that the agent asks for; 0: it does not say
	// cut is a part of the markup of the call after which the length of the first
	// answer ends it; "": it ends by itself.
	cut string
	// stall makes the model stop in the middle of the call, until it is released.
	stall bool
	// mcp makes the model call the tool of the MCP server instead of writing files.
	mcp bool

	reached, release chan struct{} // with stall: the model has stopped; it may continue

	mu      sync.Mutex
	weather bool // a prompt had what the MCP server said
	written int  // answers that wrote files
	results int  // prompts that ended with the results of tools
	left    int  // with stall: steps before it stops; 0: it is not to stop
}

// newPlay is a play in which nothing happens to an answer.
func newPlay() *play {
	return &play{context: 1 << 20, reached: make(chan struct{}), release: make(chan struct{})}
}

// say is enginetest.Options.Say.
func (p *play) say(history []int32) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	text := apitest.Tokenizer{}.Decode(history)
	last := len(history) - 1
	for last > 0 && history[last] != apitest.User {
		last--
	}
	turn := apitest.Tokenizer{}.Decode(history[last:])
	thoughts := ""
	if history[len(history)-1] == apitest.Think {
		thoughts = "I think.</think>"
	}
	if p.mcp {
		return thoughts + p.asks(text, turn)
	}
	name, parameters := writer(text)
	_, rest, asked := strings.Cut(turn, request)
	rest, _, whole := strings.Cut(rest, please)
	switch {
	case strings.Contains(turn, "<tool_result>"):
		p.results++
		return thoughts + done
	case parameters == nil || !asked || !whole:
		return thoughts + "Fine."
	}
	p.written++
	markup := calls(name, parameters, strings.Split(rest, also))
	if p.written == 1 && p.cut != "" {
		return thoughts + p.short(markup, len(history), len(thoughts))
	}
	answer := thoughts + "I write it.\n\n" + markup
	if p.stall {
		p.left = len(answer) - len(markup)/4
	}
	return answer
}

// asks is an answer with a call of the MCP server's tool, or the last words.
func (p *play) asks(text, turn string) string {
	name := forecast.FindStringSubmatch(text)
	switch {
	case strings.Contains(turn, "<tool_result>"):
		p.results++
		p.weather = p.weather || strings.Contains(turn, "22 degrees and rain")
		return done
	case name == nil:
		return "Fine."
	}
	return fmt.Sprintf("<｜DSML｜tool_calls>\n<｜DSML｜invoke name=%q>\n<｜DSML｜parameter name=\"place\" string=\"true\">Paris</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>", name[1])
}

// sawWeather reports whether a prompt had what the MCP server said.
func (p *play) sawWeather() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.weather
}

// short is an answer that its length ends within the markup.
func (p *play) short(markup string, prompt, thoughts int) string {
	i := strings.Index(markup, p.cut)
	if i < 0 {
		panic("the markup has no " + p.cut)
	}
	room := p.context - prompt
	if p.limit > 0 {
		room = min(room, p.limit)
	}
	// A few bytes more, so that the number of tokens need not be exact, and the
	// answer is longer than it may be.
	return strings.Repeat("x", room-thoughts-2-i-len(p.cut)-4) + "\n\n" + markup
}

// forward is enginetest.Options.OnForward: a model that stops.
func (p *play) forward(ctx context.Context, _ model.Step) error {
	p.mu.Lock()
	stop := p.left == 1
	p.left = max(p.left-1, 0)
	p.mu.Unlock()
	if !stop {
		return nil
	}
	close(p.reached)
	select {
	case <-p.release:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// counts are how many answers wrote files, or tried to, and how many prompts ended
// with the results of tools.
func (p *play) counts() (written, results int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.written, p.results
}

// writer finds the function that writes a file, or runs a command, among those in
// the prompt, with the members of its schema in order.
func writer(prompt string) (name string, parameters []string) {
	for line := range strings.Lines(prompt) {
		var f struct {
			Name       string
			Parameters struct{ Properties json.RawMessage }
		}
		if !strings.HasPrefix(line, `{"name": "`) || json.Unmarshal([]byte(line), &f) != nil || strings.ToLower(f.Name) != "write" && f.Name != "exec_command" {
			continue
		}
		d := json.NewDecoder(bytes.NewReader(f.Parameters.Properties))
		if _, err := d.Token(); err != nil {
			return "", nil
		}
		for d.More() {
			key, err := d.Token()
			var skip json.RawMessage
			if err != nil || d.Decode(&skip) != nil {
				return "", nil
			}
			parameters = append(parameters, fmt.Sprint(key))
		}
		return f.Name, parameters
	}
	return "", nil
}

// calls is the markup of calls that write files, one each.
func calls(name string, parameters, paths []string) string {
	var b strings.Builder
	b.WriteString("<｜DSML｜tool_calls>\n")
	for _, path := range paths {
		fmt.Fprintf(&b, "<｜DSML｜invoke name=%q>\n", name)
		values := map[string]string{"file_path": path, "filePath": path, "path": path, "content": content, "cmd": "cat > " + path + " <<'END'\n" + content + "END"}
		for _, p := range parameters {
			if values[p] != "" {
				fmt.Fprintf(&b, "<｜DSML｜parameter name=%q string=\"true\">%s</｜DSML｜parameter>\n", p, values[p])
			}
		}
		b.WriteString("</｜DSML｜invoke>\n")
	}
	return b.String() + "</｜DSML｜tool_calls>"
}
