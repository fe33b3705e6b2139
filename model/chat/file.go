package chat

import (
	"log/slog"

	"ringmaster/gguf"
	"ringmaster/model/tokenizer"
)

// FormatNames returns the names that OfFile takes.
func FormatNames() []string {
	names := []string{"auto"}
	for _, f := range Formats {
		names = append(names, f.Name)
	}
	return names
}

// OfFile returns how the model of a file writes conversations: the format with a name, or
// with "auto" the one that the file indicates.
func OfFile(name string, f *gguf.File, t *tokenizer.Tokenizer) (*Format, error) {
	if name != "auto" {
		return Named(name)
	}
	text := func(key string) string { s, _ := f.String(key); return s }
	format, why := Detect(Evidence{
		Architecture: f.Architecture(),
		Names:        text("general.name") + " " + text("general.version") + " " + text("general.basename"),
		Template:     text("tokenizer.chat_template"),
		Has:          func(token string) bool { _, ok := t.ID(token); return ok },
	})
	slog.Info("chat format", "format", format.Name, "models", format.Title, "evidence", why)
	return format, nil
}
