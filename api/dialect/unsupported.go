package dialect

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// UnsupportedField is a request field of other servers that would change the answer but
// is not implemented here. Any value except the neutral ones is a 400, because an answer
// that ignores the field would only look right.
type UnsupportedField struct {
	Name    string
	Neutral []string // JSON values, without space, that request nothing; null always is
	Remedy  string   // what to do instead
}

// Reject fails f for the first of the fields with a value that is not neutral.
func (f *Fields) Reject(list []UnsupportedField) {
	for _, u := range list {
		if !f.Has(u.Name) {
			continue
		}
		if v, ok := Compact(f.Raw[u.Name]); !ok || !slices.Contains(u.Neutral, v) {
			f.Fail(Unsupported(f.Path+u.Name, "'%s' is not supported with the value %s. %s", f.Path+u.Name, Excerpt(f.Raw[u.Name]), u.Remedy))
			return
		}
	}
}

// maxCompact bounds what Compact decodes; every neutral value is far shorter.
const maxCompact = 64

// Compact returns a JSON value in one form: without space, with sorted object keys, and
// with numbers as they were written, since the neutral values list 1 and 1.0 separately.
// ok is false for a value longer than maxCompact.
func Compact(raw json.RawMessage) (value string, ok bool) {
	length := 0
	for _, c := range raw {
		if strings.IndexByte(JSONSpace, c) >= 0 {
			continue
		}
		if length++; length > maxCompact {
			return "", false
		}
	}
	var v any
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber() // a number may be beyond float64
	if dec.Decode(&v) != nil {
		return "", false
	}
	b, err := json.Marshal(v)
	return string(b), err == nil
}
