package run

import (
	"encoding/json"
	"reflect"
	"strings"
)

// sameJSON reports whether two texts are the same JSON, however they are written. It
// ignores the order of members, because clients decode and encode arguments.
func sameJSON(a, b string) bool {
	if a == b {
		return true
	}
	decode := func(s string) (v any, ok bool) {
		d := json.NewDecoder(strings.NewReader(s))
		d.UseNumber()
		return v, d.Decode(&v) == nil
	}
	x, ok := decode(a)
	y, also := decode(b)
	return ok && also && reflect.DeepEqual(x, y)
}
