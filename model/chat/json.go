package chat

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"strings"
)

// The models saw JSON as Python writes it (json.dumps with ensure_ascii=False): a space
// after commas and colons, keys in their original order, numbers as Python prints them.
// The functions of this file write JSON that way.

// member is a member of an object.
type member struct {
	key   string
	value json.RawMessage
}

// members returns those of an object in order; if several have one key, the last value
// takes the first place. ok is false if data is not an object.
func members(data []byte) (out []member, ok bool) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, false
	}
	places := map[string]int{}
	for d.More() {
		t, err := d.Token()
		key, isKey := t.(string)
		var value json.RawMessage
		if err != nil || !isKey || d.Decode(&value) != nil {
			return nil, false
		}
		if i, twice := places[key]; twice {
			out[i].value = value
			continue
		}
		places[key] = len(out)
		out = append(out, member{key, value})
	}
	if _, err := d.Token(); err != nil {
		return nil, false
	}
	_, err := d.Token() // nothing may follow
	return out, err != nil
}

// maxDump is the most bytes of JSON that are rewritten, because decoded JSON takes some
// hundred times its length, and models saw nothing that long.
const maxDump = 64 << 10

// dump rewrites valid JSON the way Python writes it; data that is not JSON, or longer
// than maxDump, stays as it is.
func dump(data []byte) string {
	if len(data) > maxDump || !json.Valid(data) {
		return string(data)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var b strings.Builder
	parse(d).write(&b)
	return b.String()
}

// value is a decoded JSON value. Objects are decoded before they are written, because a
// repeated key is written once, with its last value.
type value struct {
	open  byte   // '[' or '{'; 0: text has the value
	text  string // as Python writes it
	keys  []string
	items []*value
}

// parse reads the next value of d, which has valid JSON.
func parse(d *json.Decoder) *value {
	t, err := d.Token()
	if err != nil {
		return &value{text: "null"}
	}
	switch t := t.(type) {
	case json.Delim:
		v := &value{open: byte(t)}
		places := map[string]int{} // of the keys
		for d.More() {
			if v.open == '[' {
				v.items = append(v.items, parse(d))
				continue
			}
			name, _ := d.Token()
			key, _ := name.(string)
			item := parse(d)
			if i, twice := places[key]; twice {
				v.items[i] = item
				continue
			}
			places[key] = len(v.items)
			v.keys, v.items = append(v.keys, key), append(v.items, item)
		}
		_, _ = d.Token()
		return v
	case string:
		return &value{text: quoted(t)}
	case json.Number:
		return &value{text: number(string(t))}
	case bool:
		return &value{text: strconv.FormatBool(t)}
	}
	return &value{text: "null"}
}

func (v *value) write(b *strings.Builder) {
	if v.open == 0 {
		b.WriteString(v.text)
		return
	}
	b.WriteByte(v.open)
	for i, item := range v.items {
		if i > 0 {
			b.WriteString(", ")
		}
		if v.open == '{' {
			quote(b, v.keys[i])
			b.WriteString(": ")
		}
		item.write(b)
	}
	b.WriteByte(v.open + 2) // ']' or '}'
}

// quoted returns a string as JSON with only the escapes that it demands.
func quoted(s string) string {
	var b strings.Builder
	quote(&b, s)
	return b.String()
}

// quote is quoted for a text that is being written.
func quote(b *strings.Builder, s string) {
	b.WriteByte('"')
	escape(b, s)
	b.WriteByte('"')
}

// escape writes a part of a string, which may begin or end within a character.
func escape(b *strings.Builder, s string) {
	const hex = "0123456789abcdef"
	for _, c := range []byte(s) {
		switch i := strings.IndexByte("\b\f\n\r\t", c); {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c >= ' ':
			b.WriteByte(c)
		case i >= 0:
			b.WriteByte('\\')
			b.WriteByte("bfnrt"[i])
		default:
			b.WriteString(`\u00`)
			b.WriteByte(hex[c>>4])
			b.WriteByte(hex[c&15])
		}
	}
}

// number formats a number of JSON as Python prints it: integers exactly, others as the
// shortest text of the nearest float64, with an exponent below 1e-4 and from 1e16.
func number(s string) string {
	if !strings.ContainsAny(s, ".eE") {
		if s == "-0" {
			return "0"
		}
		return s
	}
	v, _ := strconv.ParseFloat(s, 64)
	switch {
	case math.IsInf(v, 1):
		return "Infinity"
	case math.IsInf(v, -1):
		return "-Infinity"
	}
	if a := math.Abs(v); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.FormatFloat(v, 'e', -1, 64)
	}
	text := strconv.FormatFloat(v, 'f', -1, 64)
	if !strings.Contains(text, ".") {
		text += ".0"
	}
	return text
}
