package openai

import "ringmaster/api/run"

// usage is OpenAI's usage object.
type usage struct {
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`
	TotalTokens      int `json:"total_tokens"`
	PromptDetails    struct {
		CachedTokens int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
	CompletionDetails struct {
		ReasoningTokens int `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
}

// add adds the answers to one prompt. The prompt is counted once, however many
// choices it has.
func (u *usage) add(answers []run.Usage) {
	for i, a := range answers {
		if i == 0 {
			u.PromptTokens += a.Prompt
			u.PromptDetails.CachedTokens += a.Cached
		}
		u.CompletionTokens += a.Completion
		u.CompletionDetails.ReasoningTokens += a.Reasoning
	}
	u.TotalTokens = u.PromptTokens + u.CompletionTokens
}
