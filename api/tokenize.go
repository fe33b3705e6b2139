package api

import (
	"net/http"

	"github.com/gin-gonic/gin"
)

// tokenize turns {"text": …} into {"tokens": […], "count": n}. "content" and
// "prompt", the names other servers use, do as well. With "add_special" (false)
// the BOS token comes first; with "parse_special" (true) the texts of control
// tokens become those tokens.
func (s *server) tokenize(c *gin.Context) {
	f, failed := s.body(c)
	if failed != nil {
		s.fail(c, failed)
		return
	}
	input, given := "", false
	for _, name := range []string{"text", "content", "prompt"} {
		if f.has(name) && !given {
			input, given = f.str(name, ""), true
		}
	}
	if !given {
		f.fail(invalid("text", "missing_required_parameter", "'text' is missing."))
	}
	addBOS := f.boolean("add_special", f.boolean("add_special_tokens", false))
	special := f.boolean("parse_special", true)
	if f.err != nil {
		s.fail(c, f.err)
		return
	}
	ids := []int32{}
	if bos, ok := s.Tokenizer.BOS(); ok && addBOS {
		ids = append(ids, bos)
	}
	ids = append(ids, s.Tokenizer.Encode(input, special)...)
	s.writeJSON(c, http.StatusOK, struct {
		Tokens []int32 `json:"tokens"`
		Count  int     `json:"count"`
	}{ids, len(ids)})
}

// detokenize turns {"tokens": […]} into {"text": …}; "content" says the same to
// clients of other servers. Control tokens show nothing.
func (s *server) detokenize(c *gin.Context) {
	f, failed := s.body(c)
	if failed != nil {
		s.fail(c, failed)
		return
	}
	f.list("tokens") // must be an array
	raw := f.get("tokens")
	if raw == nil {
		f.fail(invalid("tokens", "missing_required_parameter", "'tokens' is missing."))
	}
	var ids []int32
	if f.err == nil {
		ids = s.tokenIDs(f, "tokens", raw)
	}
	if f.err != nil {
		s.fail(c, f.err)
		return
	}
	t := s.Tokenizer.Decode(ids)
	s.writeJSON(c, http.StatusOK, struct {
		Text    string `json:"text"`
		Content string `json:"content"`
	}{t, t})
}
