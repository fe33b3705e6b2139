package api

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/api/apitest"
)

// cancelling is a tokenizer that ends the request when it is first called.
type cancelling struct {
	apitest.Tokenizer
	cancel context.CancelFunc
	calls  *int
}

func (c cancelling) EncodeContext(ctx context.Context, text string, special bool) ([]int32, error) {
	*c.calls++
	ids, err := c.Tokenizer.EncodeContext(ctx, text, special)
	c.cancel()
	return ids, err
}

// TestParsingEndsWithTheRequest checks that nothing more is computed for a request
// whose client has gone while its body was being worked on.
func TestParsingEndsWithTheRequest(t *testing.T) {
	messages := strings.Repeat(`{"role":"system","content":"a"},{"role":"user","content":"b"},`, 500)
	for path, body := range map[string]string{
		"/v1/chat/completions": `{"messages":[` + strings.TrimSuffix(messages, ",") + `]}`,
		"/v1/completions":      `{"prompt":["a","b","c"]}`,
	} {
		t.Run(path, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			calls := 0
			e := answering("ok")
			c := testConfig(e)
			c.Tokenizer = cancelling{cancel: cancel, calls: &calls}
			r := httptest.NewRequestWithContext(ctx, "POST", path, strings.NewReader(body))
			r.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			New(c).ServeHTTP(w, r)
			require.Equal(t, 1, calls)
			require.Empty(t, e.submitted())
			require.Empty(t, w.Body.String())
		})
	}
}

// TestMessageLimit checks that a conversation has a bounded number of messages.
func TestMessageLimit(t *testing.T) {
	c := testConfig(answering("ok"))
	c.MaxMessages = 3
	h := New(c)
	for n, status := range map[int]int{1: 200, 3: 200, 4: 400, 1000: 400} {
		list := strings.TrimSuffix(strings.Repeat(`{"role":"user","content":"a"},`, n), ",")
		w := call(h, "POST", "/v1/chat/completions", fmt.Sprintf(`{"messages":[%s]}`, list))
		require.Equal(t, status, w.Code, n)
		if status == 400 {
			require.Equal(t, "too_many_items", value(errorOf(t, w).Code))
		}
	}
}
