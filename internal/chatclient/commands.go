package chatclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"ringmaster/internal/safetext"
	"ringmaster/internal/usage"
)

// maxConversation is the largest file that /load reads, in bytes.
const maxConversation = 64 << 20

const help = `/new               forget the conversation
/retry             ask the last question again
/undo              take back the last question and its answer
/system [TEXT]     the system message from now on; without TEXT none
/model [NAME]      the model from now on; without NAME the server's models
/set [NAME VALUE]  a field of the requests, such as temperature 0.7; VALUE none
                   removes it; without NAME the fields
/think on|off      ask the model to reason first, or not to
/reasoning on|off  show reasoning, or hide it
/save FILE         write the conversation as JSON
/load FILE         continue a saved conversation
/exit              leave, as ^D does
^C stops an answer. A line that ends with \ continues in the next one. A line that
begins with // is a question that begins with /.`

// command runs a line that begins with /; more is false after the last one.
func (s *Session) command(ctx context.Context, line string) (more bool, err error) {
	if strings.HasPrefix(line, "//") {
		s.messages = append(s.messages, Message{"user", line[1:]})
		return true, s.ask(ctx)
	}
	name, rest, _ := strings.Cut(line, " ")
	rest = strings.TrimSpace(rest)
	switch name {
	case "/exit", "/quit", "/bye":
		return false, nil
	case "/retry":
		return true, s.retry(ctx)
	case "/help", "/?":
		_, err := fmt.Fprintln(s.out, help)
		return true, err
	case "/new", "/clear":
		s.clear()
		s.say("a new conversation")
	case "/undo":
		s.undo()
	case "/system":
		s.system(rest)
	case "/model":
		s.model(rest)
	case "/set":
		s.set(rest)
	case "/think":
		s.flag(name, rest, func(on bool) { s.o.Fields["enable_thinking"] = on })
	case "/reasoning":
		s.flag(name, rest, func(on bool) { s.o.NoReasoning = !on })
	case "/save":
		s.report(s.Save(rest), "written to "+rest)
	case "/load":
		err := s.Load(rest)
		s.report(err, fmt.Sprintf("%d messages", len(s.messages)))
	default:
		s.say("there is no command %s; /help lists them", safetext.Drop(name))
	}
	return true, nil
}

func (s *Session) report(err error, done string) {
	if err != nil {
		s.say("error: %v", err)
		return
	}
	s.say("%s", safetext.Drop(done))
}

func (s *Session) flag(name, value string, set func(bool)) {
	if value != "on" && value != "off" {
		s.say("%s on or %s off", name, name)
		return
	}
	set(value == "on")
	s.say("%s is %s", name[1:], value)
}

// lastQuestion returns the index of the user's last message, -1 without one.
func (s *Session) lastQuestion() int {
	for i, m := range slices.Backward(s.messages) {
		if m.Role == "user" {
			return i
		}
	}
	return -1
}

func (s *Session) retry(ctx context.Context) error {
	i := s.lastQuestion()
	if i < 0 {
		s.say("there is no question yet")
		return nil
	}
	s.messages = s.messages[:i+1]
	return s.ask(ctx)
}

func (s *Session) undo() {
	i := s.lastQuestion()
	if i < 0 {
		s.say("there is no question yet")
		return
	}
	s.messages = s.messages[:i]
	s.say("taken back")
}

func (s *Session) system(text string) {
	s.o.System = text
	if len(s.messages) > 0 && s.messages[0].Role == "system" {
		s.messages = s.messages[1:]
	}
	if text == "" {
		s.say("no system message")
		return
	}
	s.messages = slices.Insert(s.messages, 0, Message{"system", text})
	s.say("the system message is set")
}

func (s *Session) model(name string) {
	if name == "" {
		for _, m := range s.models {
			s.say("%s", safetext.Drop(m))
		}
		return
	}
	s.o.Model = name
	s.say("the model is %s", safetext.Drop(name))
}

// set changes a field of the requests: a JSON value, or a text.
func (s *Session) set(line string) {
	name, value, _ := strings.Cut(line, " ")
	if name == "" {
		text, err := json.Marshal(s.o.Fields)
		s.report(err, string(text))
		return
	}
	value = strings.TrimSpace(value)
	switch value {
	case "":
		s.say("/set %s VALUE", safetext.Drop(name))
		return
	case "none":
		delete(s.o.Fields, name)
	default:
		s.o.Fields[name] = FieldValue(value)
	}
	s.say("%s is %s", safetext.Drop(name), safetext.Drop(value))
}

// FieldValue returns a text as a JSON value, or as a string if it is not JSON.
func FieldValue(text string) any {
	var v any
	if json.Unmarshal([]byte(text), &v) != nil {
		return text
	}
	return v
}

// writeConversation writes JSON that only its owner can read. It never replaces a file.
func writeConversation(path string, messages []Message) error {
	if path == "" {
		return errors.New("name a file, such as /save talk.json")
	}
	data, err := json.MarshalIndent(messages, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return fmt.Errorf("%s exists; name another file", path)
	}
	if err != nil {
		return err
	}
	_, err = f.Write(append(data, '\n'))
	return errors.Join(err, f.Close())
}

// ReadConversation reads what writeConversation has written. Errors name the file, and
// are those of package usage if its content is wrong.
func ReadConversation(path string) ([]Message, error) {
	if path == "" {
		return nil, errors.New("name a file, such as /load talk.json")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxConversation+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxConversation {
		return nil, usage.Errorf("%s is longer than %d bytes; is it a conversation?", path, maxConversation)
	}
	var messages []Message
	if err := json.Unmarshal(data, &messages); err != nil {
		return nil, usage.Errorf("%s is not a conversation (%w); expected what /save writes", path, err)
	}
	for i, m := range messages {
		if m.Role != "user" && m.Role != "assistant" && m.Role != "system" {
			return nil, usage.Errorf("%s: message %d has the role %q; expected system, user or assistant", path, i, m.Role)
		}
	}
	return messages, nil
}

// readMessage reads a line, and the lines that continue it after a backslash.
func readMessage(ctx context.Context, in LineReader) (string, error) {
	var b strings.Builder
	prompt := "> "
	for {
		line, err := in.ReadLine(ctx, prompt)
		if err != nil {
			return "", err
		}
		more, ok := strings.CutSuffix(line, `\`)
		b.WriteString(more)
		if !ok {
			return strings.TrimSpace(b.String()), nil
		}
		b.WriteString("\n")
		prompt = ". "
	}
}
