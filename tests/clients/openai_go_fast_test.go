//go:build !openai

package clients

import (
	"testing"

	"ringmaster/internal/testenv"
)

// TestOpenAIGo stands for the test of that name: compiling the official client takes
// longer than all other packages that the tests need, so it has a tag of its own.
func TestOpenAIGo(t *testing.T) {
	testenv.Need(t, testenv.Full, "the official Go client of OpenAI")
	t.Skip("NOT CHECKED: the official Go client of OpenAI is built with -tags openai")
}
