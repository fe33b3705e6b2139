package main

import (
	"log/slog"

	"ringmaster/gguf"
	"ringmaster/model/chat"
	"ringmaster/model/tokenizer"
)

// chatFormats are the names that --chat-format takes.
func chatFormats() []string {
	names := []string{"auto"}
	for _, f := range chat.Formats {
		names = append(names, f.Name)
	}
	return names
}

// chatFormat is how the model of a file writes conversations: the format of a name,
// or with "auto" what the file tells.
func chatFormat(name string, f *gguf.File, t *tokenizer.Tokenizer) (*chat.Format, error) {
	if name != "auto" {
		return chat.Named(name)
	}
	text := func(key string) string { s, _ := f.String(key); return s }
	format, why := chat.Detect(chat.Evidence{
		Architecture: f.Architecture(),
		Names:        text("general.name") + " " + text("general.version") + " " + text("general.basename"),
		Template:     text("tokenizer.chat_template"),
		Has:          func(token string) bool { _, ok := t.ID(token); return ok },
	})
	slog.Info("chat format", "format", format.Name, "models", format.Title, "evidence", why)
	return format, nil
}
