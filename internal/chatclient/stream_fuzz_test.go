package chatclient

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
)

// answers is a transport that answers every request with a stream of some bytes.
type answers []byte

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(bytes.NewReader(a)), Request: r}, nil
}

// FuzzStream: whatever a server sends, the answer ends. It counts as complete only with
// its end or its finish reason, and no control character of it reaches the terminal.
func FuzzStream(f *testing.F) {
	f.Add([]byte("data: {\"choices\":[{\"delta\":{\"content\":\"a\\u001b[2J\\u202eb\",\"reasoning_content\":\"c\"}}]}\n\n: keep-alive\n\ndata: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":1}}\n\ndata: [DONE]\n\n"))
	f.Add([]byte("data: {\"error\":{\"message\":\"\\u0007no\"}}\n\n"))
	f.Add([]byte("data:{\"choices\":null}\r\ndata: [DONE]"))
	f.Add([]byte("event: x\ndata: {\"choices\":[{\"delta\":{\"content\":7}}]}\n"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		c := &Client{base: "http://x", http: &http.Client{Transport: answers(stream)}}
		finished := false
		err := c.Stream(context.Background(), Request{Model: "m"}, func(e Event) error {
			finished = finished || e.Finish != ""
			for _, r := range e.Text + e.Reasoning {
				require.False(t, unicode.IsControl(r) && r != '\n' && r != '\t', "%q", e)
			}
			return nil
		})
		if err == nil {
			require.True(t, finished || bytes.Contains(stream, []byte("[DONE]")))
			return
		}
		for _, r := range err.Error() {
			require.False(t, unicode.IsControl(r) && r != '\n' && r != '\t', "%q", err)
		}
	})
}
