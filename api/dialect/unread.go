package dialect

import (
	"encoding/json"
	"slices"
)

// maxUnread bounds what Unread returns, because clients choose the names.
const maxUnread = 16

// Unread returns the paths of the members that no reader has asked for, sorted, except
// null and those in harmless, which change no answer. It looks into members that were
// read as objects, but not into lists. A member that was read as an object several times
// is unread if none of them asked for it.
func (f *Fields) Unread(harmless []string) []string {
	asked := map[string]bool{}
	var paths []string
	var walk func(f *Fields, look func(f *Fields, name string))
	walk = func(f *Fields, look func(f *Fields, name string)) {
		for name := range f.Raw {
			look(f, name)
		}
		for _, o := range f.objects {
			walk(o, look)
		}
	}
	walk(f, func(f *Fields, name string) {
		if f.read[name] || KindOf(f.Raw[name]) == "null" {
			asked[f.Path+name] = true
		}
	})
	walk(f, func(f *Fields, name string) {
		if path := f.Path + name; !asked[path] && !slices.Contains(harmless, path) {
			paths = append(paths, Printable(path))
		}
	})
	slices.Sort(paths)
	paths = slices.Compact(paths)
	return paths[:min(len(paths), maxUnread)]
}

// Printable returns a name that a client chose as a log line may have it: letters, digits
// and a few marks, of bounded length.
func Printable(name string) string {
	name = Excerpt(json.RawMessage(name))
	out := []rune(name)
	for i, c := range out {
		if c != '…' && (c < ' ' || c > '~' || c == '"' || c == '\\') {
			out[i] = '?'
		}
	}
	return string(out)
}
