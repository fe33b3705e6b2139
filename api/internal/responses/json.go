package responses

import "encoding/json"

// The JSON of a response.
type (
	response struct {
		ID                string      `json:"id"`
		Object            string      `json:"object"`
		CreatedAt         int64       `json:"created_at"`
		Status            string      `json:"status"`
		Background        bool        `json:"background"`
		Error             *failure    `json:"error"`
		Incomplete        *incomplete `json:"incomplete_details"`
		Instructions      *string     `json:"instructions"`
		MaxOutputTokens   *int        `json:"max_output_tokens"`
		Metadata          struct{}    `json:"metadata"`
		Model             string      `json:"model"`
		Output            []*item     `json:"output"`
		ParallelToolCalls bool        `json:"parallel_tool_calls"`
		Previous          *string     `json:"previous_response_id"`
		Reasoning         struct {
			Effort  *string `json:"effort"`
			Summary *string `json:"summary"`
		} `json:"reasoning"`
		Store       bool    `json:"store"`
		Temperature float64 `json:"temperature"`
		Text        struct {
			Format json.RawMessage `json:"format"`
		} `json:"text"`
		ToolChoice json.RawMessage `json:"tool_choice"`
		Tools      []tool          `json:"tools"` // those offered to the model
		TopP       float64         `json:"top_p"`
		Truncation string          `json:"truncation"`
		Usage      *usage          `json:"usage"`
	}
	// tool holds the members of all types; each type uses its own.
	tool struct {
		Type        string          `json:"type"`
		Name        string          `json:"name,omitempty"`
		Description string          `json:"description,omitempty"`
		Parameters  json.RawMessage `json:"parameters,omitempty"` // of a function, {} for none
		Strict      *bool           `json:"strict,omitempty"`     // of a function
		Format      json.RawMessage `json:"format,omitempty"`     // of a custom tool
		Tools       []tool          `json:"tools,omitempty"`      // of a namespace
	}
	incomplete struct {
		Reason string `json:"reason"`
	}
	failure struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	}
	usage struct {
		InputTokens  int `json:"input_tokens"`
		InputDetails struct {
			CachedTokens int `json:"cached_tokens"`
		} `json:"input_tokens_details"`
		OutputTokens  int `json:"output_tokens"`
		OutputDetails struct {
			ReasoningTokens int `json:"reasoning_tokens"`
		} `json:"output_tokens_details"`
		TotalTokens int `json:"total_tokens"`
	}
	// item holds the members of all types; each type uses its own.
	item struct {
		ID        string          `json:"id"`
		Type      string          `json:"type"`
		Status    string          `json:"status,omitempty"`
		Role      string          `json:"role,omitempty"`
		Summary   *[]part         `json:"summary,omitempty"`
		Content   *[]part         `json:"content,omitempty"`
		Encrypted string          `json:"encrypted_content,omitempty"`
		CallID    string          `json:"call_id,omitempty"`
		Namespace string          `json:"namespace,omitempty"`
		Name      string          `json:"name,omitempty"`
		Arguments any             `json:"arguments,omitempty"` // a string; of a tool_search_call an object
		Input     *string         `json:"input,omitempty"`
		Action    json.RawMessage `json:"action,omitempty"`
		Operation json.RawMessage `json:"operation,omitempty"`
		Execution string          `json:"execution,omitempty"`
	}
	part struct {
		Type        string      `json:"type"`
		Text        string      `json:"text"`
		Annotations *[]struct{} `json:"annotations,omitempty"`
		Logprobs    *[]struct{} `json:"logprobs,omitempty"`
	}
	// event holds the members of all types; each type uses its own.
	event struct {
		Type         string      `json:"type"`
		Number       int         `json:"sequence_number"`
		Response     *response   `json:"response,omitempty"`
		ItemID       string      `json:"item_id,omitempty"`
		OutputIndex  *int        `json:"output_index,omitempty"`
		ContentIndex *int        `json:"content_index,omitempty"`
		Item         *item       `json:"item,omitempty"`
		Part         *part       `json:"part,omitempty"`
		Delta        *string     `json:"delta,omitempty"`
		Text         *string     `json:"text,omitempty"`
		Name         string      `json:"name,omitempty"`
		Arguments    *string     `json:"arguments,omitempty"`
		Input        *string     `json:"input,omitempty"`
		Logprobs     *[]struct{} `json:"logprobs,omitempty"`
	}
)

var noLogprobs = &[]struct{}{}

// newPart returns a part of a message or of reasoning.
func newPart(kind, text string) *part {
	if kind == "reasoning" {
		return &part{Type: "reasoning_text", Text: text}
	}
	return &part{Type: "output_text", Text: text, Annotations: &[]struct{}{}, Logprobs: noLogprobs}
}
