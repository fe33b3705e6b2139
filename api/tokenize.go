package api

import (
	"fmt"
	"net/http"

	"github.com/gin-gonic/gin"

	"ringmaster/api/dialect"
)

// tokenize turns {"text": …} into {"tokens": […], "count": n}. "content" and "prompt",
// other servers' names for the field, work as well. "add_special" (default false)
// prepends the BOS token; "parse_special" (default true) turns the names of control
// tokens in the text into those tokens.
func (s *server) tokenize(c *gin.Context, f *body) {
	input, given := "", false
	for _, name := range []string{"text", "content", "prompt"} {
		if f.Has(name) && !given {
			input, given = f.String(name, ""), true
		}
	}
	if !given {
		f.Missing("text")
	}
	addBOS := f.Bool("add_special", f.Bool("add_special_tokens", false))
	special := f.Bool("parse_special", true)
	if f.Err != nil {
		s.fail(c, f.Err)
		return
	}
	if !s.texts.take() {
		s.fail(c, s.noPlace())
		return
	}
	defer s.texts.leave()
	encoded, err := s.Tokenizer.EncodeContext(f.Ctx, input, special)
	if err != nil {
		s.failRun(c, nil, err)
		return
	}
	ids := []int32{}
	if bos, ok := s.Tokenizer.BOS(); ok && addBOS {
		ids = append(ids, bos)
	}
	ids = append(ids, encoded...)
	s.writeJSON(c, http.StatusOK, struct {
		Tokens []int32 `json:"tokens"`
		Count  int     `json:"count"`
	}{ids, len(ids)})
}

// detokenize turns {"tokens": […]} into {"text": …}, repeated as "content" for clients of
// other servers. Control tokens have no text.
func (s *server) detokenize(c *gin.Context, f *body) {
	raw := f.Get("tokens")
	switch {
	case raw == nil:
		f.Missing("tokens")
	case dialect.KindOf(raw) != "array":
		f.WrongType("tokens", "an array", raw)
	}
	if !s.texts.take() {
		s.fail(c, s.noPlace())
		return
	}
	defer s.texts.leave()
	var ids []int32
	if f.Err == nil {
		ids = s.service.TokenIDs(f.Fields, "tokens", raw)
	}
	if f.Err != nil {
		s.failRun(c, nil, f.Err)
		return
	}
	t := s.Tokenizer.Decode(ids)
	s.writeJSON(c, http.StatusOK, struct {
		Text    string `json:"text"`
		Content string `json:"content"`
	}{t, t})
}

// count handles an endpoint of a dialect that only renders and tokenizes a prompt. It
// takes a place as tokenize does.
func (s *server) count(answer func(*dialect.Service, *dialect.Fields) (any, *Error)) gin.HandlerFunc {
	return s.withBody(func(c *gin.Context, f *body) {
		if !s.texts.take() {
			s.fail(c, s.noPlace())
			return
		}
		defer s.texts.leave()
		v, failed := answer(s.service, f.Fields)
		if failed != nil {
			s.failRun(c, nil, failed)
			return
		}
		s.writeJSON(c, http.StatusOK, v)
	})
}

// noPlace returns the error for a text when no place is free.
func (s *server) noPlace() *Error {
	return &Error{Status: http.StatusTooManyRequests, Code: "server_busy", RetryAfter: s.RetryAfter,
		Message: fmt.Sprintf("The limit of %d concurrent requests to tokenize is reached; try again later.", s.MaxTexts)}
}
