package dialect

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
)

// Hints returns what a body says about the use of the prefix cache; it ignores a hint
// that it does not understand. group is an opaque name, of bounded length, of the program
// that sent the request: the first of "prompt_cache_key", "metadata.user_id" (Anthropic's
// clients), "metadata.session_id" and "user"; "" if none is set. marked means that the
// client wants the prompt to be kept: a "cache_control" in the messages, the instructions
// or the tools, or a "prompt_cache_retention" of 24h.
func Hints(f *Fields) (group string, marked bool) {
	text := func(raw map[string]json.RawMessage, name string) string {
		if v := raw[name]; len(v) > 2 && KindOf(v) == "string" {
			return Text(v)
		}
		return ""
	}
	metadata := Fields{}
	if v := f.Raw["metadata"]; len(v) > 0 && KindOf(v) == "object" {
		metadata.ReadMembers(v, MaxMembers)
	}
	for _, name := range []string{
		text(f.Raw, "prompt_cache_key"), text(metadata.Raw, "user_id"), text(metadata.Raw, "session_id"), text(f.Raw, "user"),
	} {
		if name != "" {
			sum := sha256.Sum256([]byte(name))
			group = hex.EncodeToString(sum[:16])
			break
		}
	}
	marked = text(f.Raw, "prompt_cache_retention") == "24h"
	for _, name := range []string{"messages", "system", "tools", "cache_control"} {
		marked = marked || hasMember(f.Raw[name], `"cache_control"`) || name == "cache_control" && f.Has(name)
	}
	return group, marked
}

// hasMember reports whether an object in a JSON value has a member with a name, which is
// in quotes. It cannot mistake a string for a member, because in a string the closing
// quote of the name would be escaped.
func hasMember(value json.RawMessage, name string) bool {
	for {
		_, after, found := bytes.Cut(value, []byte(name))
		if !found {
			return false
		}
		if after = bytes.TrimLeft(after, JSONSpace); len(after) > 0 && after[0] == ':' {
			return true
		}
		value = after
	}
}
