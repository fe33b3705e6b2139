package chat

import (
	"context"
	"fmt"
)

// Segment is a part of a prompt: one marker, text without markers of the format, or ids.
// Two segments of text never follow each other, so that the tokens of a prompt are those
// of its segments.
type Segment struct {
	Text   string
	Marker bool
	// Plain means that a marker is written as text if the vocabulary has no token for it.
	Plain bool
	IDs   []int32 // replaces Text
	// Branch means that other prompts are likely to differ only after this segment: it ends
	// the system prompt with the functions, or a turn.
	Branch bool
}

// Encoder is what Encode needs of a tokenizer.
type Encoder interface {
	// EncodeContext returns the ids of a text; with special, markers spelled out in it
	// become their ids. It returns ctx's error soon after ctx has ended.
	EncodeContext(ctx context.Context, text string, special bool) ([]int32, error)
	// ID finds the token of a marker.
	ID(token string) (int32, bool)
}

// Encode returns the prompt of a conversation as token ids, with BOS. Every marker must
// be a token of the vocabulary unless it is Plain, because a model without it does not
// know this format. branches are the strictly ascending lengths in tokens at which
// the prompt has a Branch; the first is the end of the system prompt with the functions, if
// the prompt has one and a marker follows it. It returns ctx's error soon after ctx has ended.
func (f *Format) Encode(ctx context.Context, t Encoder, c *Conversation) (ids []int32, branches []int, err error) {
	segments, err := f.Segments(c)
	if err != nil {
		return nil, nil, err
	}
	for _, s := range join(segments, func(marker string) bool { _, ok := t.ID(marker); return ok }) {
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
		switch {
		case s.IDs != nil:
			ids = append(ids, s.IDs...)
		case !s.Marker:
			more, err := t.EncodeContext(ctx, s.Text, false)
			if err != nil {
				return nil, nil, err
			}
			ids = append(ids, more...)
		default:
			id, ok := t.ID(s.Text)
			if !ok {
				return nil, nil, &Error{ErrUnsupported, "vocabulary", fmt.Sprintf("the model has no token %q, which a prompt of the format %s needs; choose another with --chat-format", s.Text, f.Name)}
			}
			ids = append(ids, id)
		}
		if s.Branch { // each turn has a marker, so the lengths ascend strictly
			branches = append(branches, len(ids))
		}
	}
	return ids, branches, nil
}

// join turns the plain markers without a token in the vocabulary into text, as one
// segment with the texts around them.
func join(segments []Segment, has func(marker string) bool) []Segment {
	w := writer{}
	for _, s := range segments {
		switch {
		case s.IDs != nil:
			w.ids(s.IDs)
		case !s.Marker || s.Plain && !has(s.Text):
			w.text(s.Text)
		default:
			w.mark(s.Text)
		}
		if s.Branch {
			w.branch()
		}
	}
	return w.done()
}
