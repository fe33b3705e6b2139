// Package safetext makes texts of files and of peers safe to show in a terminal. Line is
// for the place where such a text is read: it makes one line of bounded length. Writer is
// for the place where a command prints: it escapes whatever was not cleaned before.
//
// Unsafe characters are shown as JSON escapes (\u001b), so that JSON that passes a Writer
// keeps its meaning.
package safetext

import (
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// Evidence bounds what an error or a finding quotes from a peer or a file, in bytes.
const Evidence = 300

// invisible has the characters that reorder, hide or break text without being control
// characters. It omits the joiners (U+200C, U+200D) and the soft hyphen, because words
// and emoji need them.
var invisible = &unicode.RangeTable{
	R16: []unicode.Range16{
		{Lo: 0x061c, Hi: 0x061c, Stride: 1}, // Arabic letter mark
		{Lo: 0x180e, Hi: 0x180e, Stride: 1}, // Mongolian vowel separator
		{Lo: 0x200b, Hi: 0x200b, Stride: 1}, // zero width space
		{Lo: 0x200e, Hi: 0x200f, Stride: 1}, // direction marks
		{Lo: 0x2028, Hi: 0x202e, Stride: 1}, // separators, embeddings and overrides of direction
		{Lo: 0x2060, Hi: 0x206f, Stride: 1}, // word joiner, invisible operators, isolates
		{Lo: 0xfeff, Hi: 0xfeff, Stride: 1}, // byte order mark
		{Lo: 0xfff9, Hi: 0xfffb, Stride: 1}, // interlinear annotation
	},
	R32: []unicode.Range32{{Lo: 0xe0000, Hi: 0xe007f, Stride: 1}}, // tags
}

// Unsafe reports whether a terminal may take a character as a command, or hide or reorder
// text because of it. Line breaks and tabs are safe.
func Unsafe(r rune) bool {
	switch {
	case r == '\n' || r == '\t':
		return false
	case r < utf8.RuneSelf:
		return r < ' ' || r == 0x7f
	}
	return unicode.IsControl(r) || unicode.Is(invisible, r)
}

// Drop removes unsafe characters and invalid bytes. It is for text of many lines, such as
// an answer.
func Drop(s string) string {
	return strings.Map(func(r rune) rune {
		if Unsafe(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, ""))
}

// Line makes one line of at most most bytes: white space becomes single spaces, unsafe
// characters and invalid bytes are escaped, and the line says how much was cut off.
func Line(s string, most int) string {
	var b strings.Builder
	space := false
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if unicode.IsSpace(r) && r != 0x85 {
			space = b.Len() > 0
			i += n
			continue
		}
		var one [12]byte
		text := appendRune(one[:0], s[i:i+n], r)
		if space {
			text = append([]byte{' '}, text...)
		}
		if b.Len()+len(text) > most {
			return fmt.Sprintf("%s… (%d more bytes)", b.String(), len(s)-i)
		}
		b.Write(text)
		space = false
		i += n
	}
	return b.String()
}

// Error returns err with its text passed through Line; errors.Is and errors.As see err.
// nil stays nil.
func Error(err error, most int) error {
	if err == nil {
		return nil
	}
	return &lineError{err, most}
}

type lineError struct {
	err  error
	most int
}

func (e *lineError) Error() string { return Line(e.err.Error(), e.most) }
func (e *lineError) Unwrap() error { return e.err }

// Strings passes every string that a pointer leads to through Line, in structs, slices
// and maps, for values decoded from a peer's JSON.
func Strings(v any, most int) { lines(reflect.ValueOf(v), most) }

func lines(v reflect.Value, most int) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			lines(v.Elem(), most)
		}
	case reflect.String:
		if v.CanSet() {
			v.SetString(Line(v.String(), most))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				lines(v.Field(i), most)
			}
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			lines(v.Index(i), most)
		}
	case reflect.Map:
		cleaned := reflect.MakeMap(v.Type())
		for _, key := range v.MapKeys() {
			k, x := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			k.Set(key)
			x.Set(v.MapIndex(key))
			lines(k, most)
			lines(x, most)
			cleaned.SetMapIndex(k, x)
		}
		if v.CanSet() && !v.IsNil() {
			v.Set(cleaned)
		}
	}
}

// appendRune appends a character as it is shown; text is its bytes.
func appendRune(to []byte, text string, r rune) []byte {
	switch {
	case r == utf8.RuneError && len(text) < 2:
		return fmt.Appendf(to, `\x%02x`, text[0])
	case !Unsafe(r):
		return append(to, text...)
	case r > 0xffff:
		r -= 0x10000
		return fmt.Appendf(to, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
	}
	return fmt.Appendf(to, `\u%04x`, r)
}

// Writer escapes the unsafe characters of all that is written to it. It is safe for
// concurrent use.
type Writer struct {
	mu     sync.Mutex
	w      io.Writer
	styled bool
	rest   []byte // beginning of a character whose end has not been written yet
}

// NewWriter returns a Writer to w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// NewStyled returns a Writer to a terminal that also passes the sequences for styling
// text: colours, and moving the cursor up to erase what was written. One Write must
// contain a whole sequence.
func NewStyled(w io.Writer) *Writer { return &Writer{w: w, styled: true} }

// Unwrap returns the writer below.
func (s *Writer) Unwrap() io.Writer { return s.w }

// setting matches the sequences that a styled Writer passes.
var setting = regexp.MustCompile(`^(\x1b\[[0-9;]{0,32}m|\r?\x1b\[[0-9]{0,4}A|\r?\x1b\[J)`)

// Write implements io.Writer. The result counts the bytes of p.
func (s *Writer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := string(append(s.rest, p...))
	s.rest = nil
	out := make([]byte, 0, len(text))
	for i := 0; i < len(text); {
		if !utf8.FullRuneInString(text[i:]) {
			s.rest = []byte(text[i:])
			break
		}
		r, n := utf8.DecodeRuneInString(text[i:])
		if s.styled && (r == '\x1b' || r == '\r') {
			if q := setting.FindString(text[i:min(len(text), i+64)]); q != "" {
				out = append(out, q...)
				i += len(q)
				continue
			}
		}
		out = appendRune(out, text[i:i+n], r)
		i += n
	}
	if _, err := s.w.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}
