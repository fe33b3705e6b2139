package chatclient

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"time"

	"ringmaster/internal/safetext"
)

// maxLine is the longest line of a stream that is read, in bytes.
const maxLine = 4 << 20

// ErrBroken is wrapped by the error of an answer if its stream ended too early.
var ErrBroken = errors.New("the stream ended before the answer")

// errStalled is the cause of an answer's end after its stream was silent.
var errStalled = errors.New("stalled")

// Stream sends a request and calls each with the pieces of the answer, in order. It
// returns after the last one, or with an error: that of each, the cause of ctx, the
// server's own, or one that wraps ErrBroken.
func (c *Client) Stream(ctx context.Context, r Request, each func(Event) error) error {
	body := map[string]any{"model": r.Model, "messages": r.Messages, "stream": true, "stream_options": map[string]any{"include_usage": true}}
	maps.Copy(body, r.Options)
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	stall := cmp.Or(c.Stall, DefaultStall)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watch := time.AfterFunc(stall, func() { cancel(errStalled) })
	defer watch.Stop()
	err = c.answer(ctx, data, func() { watch.Reset(stall) }, each)
	if errors.Is(err, errStalled) {
		return fmt.Errorf("%s sent nothing for %v, not even a keep-alive; see its log and /readyz", c.base, stall)
	}
	return err
}

// answer posts a request and reads its stream; alive is called for each line.
func (c *Client) answer(ctx context.Context, data []byte, alive func(), each func(Event) error) error {
	resp, err := c.do(ctx, http.MethodPost, "/v1/chat/completions", data)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(make([]byte, 64<<10), maxLine)
	finished := false
	for lines.Scan() {
		alive()
		data, ok := strings.CutPrefix(lines.Text(), "data:")
		if !ok {
			continue // a comment, an empty line, the name of an event
		}
		if data = strings.TrimSpace(data); data == "[DONE]" {
			return nil
		}
		e, err := c.parse(data)
		if err != nil {
			return err
		}
		finished = finished || e.Finish != ""
		if err := each(e); err != nil {
			return err
		}
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("%s: %w: %w", c.base, ErrBroken, err)
	}
	if !finished { // some servers leave [DONE] out
		return fmt.Errorf("%s: %w: %w", c.base, ErrBroken, io.ErrUnexpectedEOF)
	}
	return nil
}

// parse reads the data of one event of the stream.
func (c *Client) parse(data string) (Event, error) {
	var chunk struct {
		Choices []struct {
			Delta struct {
				Content   string `json:"content"`
				Reasoning string `json:"reasoning_content"`
			} `json:"delta"`
			Finish string `json:"finish_reason"`
		} `json:"choices"`
		Usage   *Usage          `json:"usage"`
		Timings *Timings        `json:"timings"`
		Error   json.RawMessage `json:"error"`
	}
	if err := json.Unmarshal([]byte(data), &chunk); err != nil {
		return Event{}, fmt.Errorf("%s sent an event that is not JSON (%w); is this an OpenAI-compatible server?", c.base, safetext.Error(err, safetext.Evidence))
	}
	if len(chunk.Error) > 0 && string(chunk.Error) != "null" {
		message := cmp.Or(errorMessage([]byte(data)), "the answer failed; see the server's log")
		return Event{}, fmt.Errorf("%s: %s", c.base, message)
	}
	e := Event{Usage: chunk.Usage, Timings: chunk.Timings}
	if len(chunk.Choices) > 0 {
		x := chunk.Choices[0]
		e.Text, e.Reasoning, e.Finish = safetext.Drop(x.Delta.Content), safetext.Drop(x.Delta.Reasoning), safetext.Line(x.Finish, safetext.Evidence)
	}
	return e, nil
}
