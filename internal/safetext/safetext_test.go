package safetext

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
)

// hostile has what a terminal could obey or display misleadingly.
var hostile = []string{"\x1b[2J", "\x1b]0;title\x07", "\x9b31m", "\u009b31m", "\r", "\b", "\x00", "\x7f", "\u0085", "\u202e", "\u2066", "\u200f", "\u061c",
	"\u2028", "\u200b", "\ufeff", "\U000e0041", "\xff\xfe", "\x1bP+q\x1b\\", "\x0e"}

func requireSafe(t *testing.T, text string) {
	t.Helper()
	require.True(t, utf8.ValidString(text), "%q", text)
	for _, r := range text {
		require.False(t, Unsafe(r), "%q", text)
	}
}

func TestLine(t *testing.T) {
	for _, bad := range hostile {
		line := Line("a"+bad+"b\n\n c", 100)
		requireSafe(t, line)
		require.NotContains(t, line, "\n")
		require.True(t, strings.HasPrefix(line, "a") && strings.HasSuffix(line, "b c"), line)
	}
	require.Equal(t, `\u001b[2J\u202e\x9b`, Line("\x1b[2J\u202e\x9b", 100))
	require.Equal(t, "ein Wort 語 \U0001f469\u200d\U0001f4bb", Line(" ein\tWort\r\n語 \U0001f469\u200d\U0001f4bb ", 100))
	require.Equal(t, "aaaaaaaaaa… (999990 more bytes)", Line(strings.Repeat("a", 1000000), 10))
	require.Equal(t, `\u001b… (1 more bytes)`, Line("\x1b\x1b", 10)) // escapes are not cut
	require.Equal(t, "é… (2 more bytes)", Line("éé", 3))
	require.Empty(t, Line("\n \n", 10))
}

func TestDrop(t *testing.T) {
	require.Equal(t, "a\n\tb[2Jc", Drop("a\n\tb\x1b[2J\u202ec\xff\r"))
}

// TestWriter writes hostile text whole and byte by byte, so that characters are cut.
func TestWriter(t *testing.T) {
	text := "ü€\U0001f469 " + strings.Join(hostile, "|") + "\nend\n"
	var whole, pieces bytes.Buffer
	n, err := NewWriter(&whole).Write([]byte(text))
	require.NoError(t, err)
	require.Equal(t, len(text), n)
	requireSafe(t, whole.String())
	require.True(t, strings.HasPrefix(whole.String(), "ü€\U0001f469 \\u001b[2J|") && strings.HasSuffix(whole.String(), "\nend\n"), whole.String())
	w := NewWriter(&pieces)
	for i := range len(text) {
		n, err := w.Write([]byte{text[i]})
		require.NoError(t, err)
		require.Equal(t, 1, n)
	}
	require.Equal(t, whole.String(), pieces.String())
}

// TestWriterKeepsJSON: JSON means the same behind a Writer.
func TestWriterKeepsJSON(t *testing.T) {
	want := map[string]string{"a": `\` + strings.ToValidUTF8(strings.Join(hostile, `\"`), "\ufffd")}
	var out bytes.Buffer
	enc := json.NewEncoder(NewWriter(&out))
	enc.SetEscapeHTML(false)
	require.NoError(t, enc.Encode(want))
	requireSafe(t, out.String())
	got := testenv.FromJSON[map[string]string](t, out.Bytes())
	require.Equal(t, want, got)
}

// TestStyledWriter: only styling sequences pass.
func TestStyledWriter(t *testing.T) {
	for text, want := range map[string]string{
		"\x1b[1;36mcode\x1b[0m":       "\x1b[1;36mcode\x1b[0m",
		"\r\x1b[3A\x1b[Jnow":          "\r\x1b[3A\x1b[Jnow",
		"\r\x1b[Jnow":                 "\r\x1b[Jnow",
		"\x1b[2J":                     `\u001b[2J`,
		"\x1b]52;c;AAAA\x07":          `\u001b]52;c;AAAA\u0007`,
		"over\rwrite":                 `over\u000dwrite`,
		"\x1b[6n\x1b[?1049h\x1bc\x1b": `\u001b[6n\u001b[?1049h\u001bc\u001b`,
		"\u009b1m\u202e":              `\u009b1m\u202e`,
	} {
		var out bytes.Buffer
		_, err := NewStyled(&out).Write([]byte(text))
		require.NoError(t, err)
		require.Equal(t, want, out.String())
	}
}
