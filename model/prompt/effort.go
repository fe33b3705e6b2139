package prompt

// The texts that ask for more effort, word for word as the models were trained
// with them. Each ends with an empty line and stands directly after BOS.
const (
	effort1 = `Reasoning Effort: Absolute maximum with no shortcuts permitted.
You MUST be very thorough in your thinking and comprehensively decompose the problem to resolve the root cause, rigorously stress-testing your logic against all potential paths, edge cases, and adversarial scenarios.
Explicitly write out your entire deliberation process, documenting every intermediate step, considered alternative, and rejected hypothesis to ensure absolutely no assumption is left unchecked.

`
	effort2 = `Reasoning Effort: Beyond maximum — exhaustive, relentless, and uncompromising.
You MUST reason with the utmost depth and rigor, leaving absolutely nothing to chance: exhaustively decompose the problem into its most fundamental components, trace every causal chain to its root, and resolve the underlying cause rather than any surface symptom.
Do not stop reasoning until you have independently verified the solution from multiple angles and are certain that no assumption remains unchecked and no error remains undiscovered.

`
)

// effortText is the text for the options' effort; "" for none.
func effortText(o Options) (string, error) {
	level := 0
	switch o.Effort {
	case "", "none", "low":
	case "high":
		level = 1
	case "max", "xhigh":
		level = 2
	default:
		return "", &Error{ErrInvalid, "effort", "it is \"" + o.Effort + "\"; expected none, low, high, xhigh or max"}
	}
	switch o.Version {
	case Preview:
		level--
	case Release0731:
	default:
		return "", &Error{ErrInvalid, "version", "it is neither Preview nor Release0731"}
	}
	switch {
	case !o.Thinking || level <= 0:
		return "", nil
	case level == 1:
		return effort1, nil
	default:
		return effort2, nil
	}
}
