package tokenizer

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEncodeLines(t *testing.T) {
	encode := func(s string) []int32 {
		var ids []int32
		for _, b := range []byte(s) {
			ids = append(ids, int32(b))
		}
		return ids
	}
	var out bytes.Buffer
	require.NoError(t, EncodeLines(strings.NewReader("{\"text\":\"ab\"}\n{\"text\":\"\"}\n"), &out, encode))
	require.Equal(t, "{\"ids\":[97,98]}\n{\"ids\":[]}\n", out.String())
	require.ErrorContains(t, EncodeLines(strings.NewReader(`{"text":"a"} {"txt":1}`), &out, encode), `value 2: field "text" is missing`)
	require.ErrorContains(t, EncodeLines(strings.NewReader(`{"text":`), &out, encode), "value 1")
}
