package plan

import "ringmaster/distributed"

// The request by which LayerCost compares topologies, that of --share auto: a
// prompt in one step, then an answer of one token a step.
const (
	promptTokens = 512
	answerTokens = 128
	// tokenBytes is the hidden state of a token of DeepSeek V3, 7168 float16.
	tokenBytes = 14336
)

// LayerCost estimates how long the sums of one layer take in a whole request, in
// nanoseconds. It is how a ring and a mesh are compared, before anything has been
// measured, so it uses DefaultModel.
func LayerCost(cfg Config) (int64, error) {
	cfg.Model = Model{}
	cost := func(tokens int64) (int64, error) {
		p, err := New(cfg, Request{Op: AllSum, DType: distributed.Float16, Bytes: tokens * tokenBytes})
		if err != nil {
			return 0, err
		}
		return p.Cost, nil
	}
	prompt, err := cost(promptTokens)
	if err != nil {
		return 0, err
	}
	token, err := cost(1)
	return prompt + answerTokens*token, err
}
