package jsonschema

import (
	"strconv"
	"strings"
)

// part is a subschema and its place.
type part struct {
	schema *value
	at     *place
}

// place is the place of a subschema: a JSON pointer that becomes text only in an error.
// nil is the whole schema.
type place struct {
	up      *place
	keyword string // "": path is the whole pointer up to here
	path    string // a name, an index, or "" for neither
}

// sub returns a subschema at a keyword.
func (p part) sub(schema *value, keyword string) part {
	return part{schema, &place{p.at, keyword, ""}}
}

// member returns a subschema with a name at a keyword.
func (p part) member(schema *value, keyword, name string) part {
	return part{schema, &place{p.at, keyword, name}}
}

// item returns a subschema of a list at a keyword.
func (p part) item(schema *value, keyword string, i int) part {
	return part{schema, &place{p.at, keyword, strconv.Itoa(i)}}
}

var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")

func escapePointer(name string) string { return pointerEscapes.Replace(name) }

// Bounds of a place in an error, in bytes.
const (
	maxPlaceName = 64
	maxPlaces    = 512
)

// String returns the JSON pointer; long parts are cut.
func (p *place) String() string {
	var parts []string
	size := 0
	for ; p != nil; p = p.up {
		name := shortened(p.path)
		if p.keyword != "" {
			if name != "" {
				name = "/" + escapePointer(name)
			}
			name = "/" + p.keyword + name
		}
		if size += len(name); size > maxPlaces {
			parts = append(parts, "...")
			break
		}
		parts = append(parts, name)
	}
	var b strings.Builder
	for i := len(parts) - 1; i >= 0; i-- {
		b.WriteString(parts[i])
	}
	return b.String()
}

// shortened returns the beginning of a text that an error quotes.
func shortened(s string) string {
	if len(s) <= maxPlaceName {
		return s
	}
	return strings.ToValidUTF8(s[:maxPlaceName], "") + "..."
}
