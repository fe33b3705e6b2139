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
		// With a prediction: its tokens that were tried, and were or were not the answer's.
		AcceptedTokens *int `json:"accepted_prediction_tokens,omitempty"`
		RejectedTokens *int `json:"rejected_prediction_tokens,omitempty"`
	} `json:"completion_tokens_details"`
}

// predict makes room for the tokens of a prediction.
func (u *usage) predict() {
	u.CompletionDetails.AcceptedTokens, u.CompletionDetails.RejectedTokens = new(int), new(int)
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
		if d := &u.CompletionDetails; d.AcceptedTokens != nil {
			*d.AcceptedTokens += a.Accepted
			*d.RejectedTokens += a.Rejected
		}
	}
	u.TotalTokens = u.PromptTokens + u.CompletionTokens
}
