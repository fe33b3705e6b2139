package chat

import (
	"fmt"
	"slices"
	"strconv"
)

// Efforts are the names of efforts that clients may send, besides numbers.
var Efforts = []string{"none", "minimal", "low", "medium", "high", "xhigh", "max", "ultra"}

// The texts that ask for more effort, word for word as the models were trained with them.
// Each ends with an empty line and directly follows BOS.
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

// levels are the efforts' ranks: 0 asks for nothing.
var levels = map[string]int{"": 0, "none": 0, "minimal": 0, "low": 0, "medium": 1, "high": 1, "xhigh": 1, "max": 2, "ultra": 2}

// An effortText returns the text of an effort, which is not checked yet.
type effortText func(effort string) (string, error)

func effortLevel(effort string) (int, error) {
	level, ok := levels[effort]
	if !ok {
		return 0, invalid("effort", "it is %q; expected one of %v", effort, Efforts)
	}
	return level, nil
}

// effortNone is for formats without texts for effort.
func effortNone(effort string) (string, error) {
	_, err := effortLevel(effort)
	return "", err
}

// effortPreview has the levels of DeepSeek V4 of April 2026, in which xhigh is max.
func effortPreview(effort string) (string, error) {
	level, err := effortLevel(effort)
	if level == 2 || effort == "xhigh" {
		return effort1, err
	}
	return "", err
}

// effort0731 has those of DeepSeek V4 Flash 0731.
func effort0731(effort string) (string, error) {
	level, err := effortLevel(effort)
	return []string{"", effort1, effort2}[level], err
}

// effortScale has that of DeepSeek V4.1: a number from 1 to 100, or the name of one.
func effortScale(effort string) (string, error) {
	scale := map[string]int{"": 75, "none": 75, "minimal": 50, "low": 50, "medium": 75, "high": 75, "xhigh": 75, "max": 100, "ultra": 100}
	n, ok := scale[effort]
	if !ok {
		var err error
		if n, err = strconv.Atoi(effort); err != nil || n < 1 || n > 100 {
			return "", invalid("effort", "it is %q; expected a number from 1 to 100 or one of %v", effort, Efforts)
		}
	}
	return fmt.Sprintf("Reasoning Effort: %d (range 1-100, the higher the value, the more thorough the reasoning)\n\n", n), nil
}

// effortGLM has those of GLM-5.2: "max", which is the default, and "high" for all below.
func effortGLM(effort string) (string, error) {
	level, err := effortLevel(effort)
	if effort == "" || effort == "xhigh" || level == 2 {
		return "Reasoning Effort: Max", err
	}
	return "Reasoning Effort: High", err
}

// IsEffort reports whether some format may know an effort.
func IsEffort(effort string) bool {
	n, err := strconv.Atoi(effort)
	return slices.Contains(Efforts, effort) || err == nil && n >= 1 && n <= 100
}
