package dialect

import (
	"bytes"
	"context"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"sync"

	"ringmaster/engine"
	"ringmaster/engine/drafts"
	"ringmaster/model/chat"
)

// mostRelated bounds the bytes of the texts that answers take drafts from beside the prompt,
// and those of what the client expects.
const mostRelated = 1 << 20

// Relate tells requests which texts their answers may repeat in another form than the
// prompt has them in: results of tools and texts of the user as JSON writes them in the
// arguments of a call, and without the line numbers that editors show; and the text that the
// client expects, if it is not empty. They make answers faster and change none.
func (s *Service) Relate(messages []chat.Message, expected string, requests []engine.Request) {
	texts := relatedTexts(messages)
	if len(expected) > mostRelated {
		expected = strings.ToValidUTF8(expected[:mostRelated], "")
	}
	if expected == "" && len(texts) == 0 {
		return
	}
	var once sync.Once
	var found []engine.RelatedText
	related := func(ctx context.Context) []engine.RelatedText {
		once.Do(func() {
			if expected != "" {
				found = s.relate(ctx, found, drafts.Prediction, append([]string{expected}, forms(expected)...))
			}
			for _, text := range texts {
				if len(found) == drafts.MostTexts {
					return
				}
				found = s.relate(ctx, found, drafts.Text, forms(text))
			}
		})
		return found
	}
	for i := range requests {
		requests[i].Related = related
	}
}

// relate appends the tokens of texts, until ctx ends or there are as many as are searched.
func (s *Service) relate(ctx context.Context, to []engine.RelatedText, source drafts.Source, texts []string) []engine.RelatedText {
	for _, text := range texts {
		if len(to) == drafts.MostTexts {
			return to
		}
		ids, err := s.Tokenizer.EncodeContext(ctx, text, false)
		if err != nil {
			return to
		}
		to = append(to, engine.RelatedText{Source: source, Tokens: ids})
	}
	return to
}

// relatedTexts returns the texts of tools and of the user, the last first, until they have
// mostRelated bytes. The requests keep them until their prompts have run.
func relatedTexts(messages []chat.Message) (texts []string) {
	left := mostRelated
	for _, m := range slices.Backward(messages) {
		if m.Role != chat.Tool && m.Role != chat.User {
			continue
		}
		if left -= len(m.Content); left < 0 {
			break
		}
		texts = append(texts, m.Content)
	}
	return texts
}

// forms returns the other forms that an answer may write a text in: without line numbers,
// and with JSON's escapes.
func forms(text string) (all []string) {
	plain := unnumbered(text)
	if plain != text {
		all = append(all, plain)
	}
	if escaped := escape(plain); escaped != plain {
		all = append(all, escaped)
	}
	return all
}

// escape returns a text as JSON writes it between quotes.
func escape(text string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(text) != nil {
		return text
	}
	return strings.TrimSuffix(strings.TrimPrefix(b.String(), `"`), "\"\n")
}

// lineNumber is how tools that show files number their lines.
var lineNumber = regexp.MustCompile(`(?m)^ *[0-9]+(?:\t|→)`)

// unnumbered returns a text without line numbers, if most of its lines have one.
func unnumbered(text string) string {
	lines := strings.Count(text, "\n") + 1
	numbers := lineNumber.FindAllStringIndex(text, -1)
	if len(numbers) < 2 || 2*len(numbers) < lines {
		return text
	}
	return lineNumber.ReplaceAllString(text, "")
}
