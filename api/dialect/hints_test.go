package dialect

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHints(t *testing.T) {
	hints := func(body string) (string, bool) {
		f, failed := ParseObject([]byte(body))
		require.Nil(t, failed, body)
		return Hints(f)
	}
	key, marked := hints(`{"prompt_cache_key":"a","metadata":{"user_id":"b"},"user":"c"}`)
	require.Len(t, key, 32)
	require.False(t, marked)
	for body, same := range map[string]bool{
		`{"prompt_cache_key":"a"}`: true, `{"metadata":{"user_id":"a"}}`: true, `{"metadata":{"session_id":"a","user_id":""}}`: true, `{"user":"a"}`: true,
		`{"prompt_cache_key":"b"}`: false, `{"prompt_cache_key":1,"metadata":[],"user":{}}`: false, `{"metadata":{"user_id":null}}`: false, `{}`: false,
	} {
		got, _ := hints(body)
		require.Equal(t, same, got == key, body)
	}
	long, _ := hints(`{"prompt_cache_key":"` + strings.Repeat("x", 1<<16) + `"}`)
	require.Len(t, long, 32)
	for body, want := range map[string]bool{
		`{"messages":[{"content":[{"type":"text","text":"x","cache_control" : {"type":"ephemeral"}}]}]}`: true,
		`{"system":[{"type":"text","text":"x","cache_control":{}}]}`:                                     true,
		`{"tools":[{"name":"f","cache_control":{}}]}`:                                                    true,
		`{"cache_control":{"type":"ephemeral"}}`:                                                         true, `{"cache_control":null}`: false,
		`{"prompt_cache_retention":"24h"}`: true, `{"prompt_cache_retention":"in_memory"}`: false,
		`{"messages":[{"content":"\"cache_control\": {}"}]}`:                         false,
		`{"messages":[{"content":"cache_control"},{"content":"\"cache_control\""}]}`: false,
		`{"messages":["cache_control", {"a":"cache_control"}]}`:                      false,
		`{"other":{"cache_control":{}}}`:                                             false,
	} {
		_, got := hints(body)
		require.Equal(t, want, got, body)
	}
}
