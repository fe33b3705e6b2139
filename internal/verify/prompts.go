package verify

import "strings"

// paragraph has several kinds of text: prose, numbers, code, other alphabets.
const paragraph = `A ring of hosts passes each layer's rows from one to the next, and every host adds what its own experts give. ` +
	`The order of the sums is fixed, so 0.1 + 0.2 is the same on two hosts as on eight. In 1969 two people walked on the Moon; in 2026 no one counts the steps of a program. ` +
	"func add(a, b int) int { return a + b } // 3, 5, 8, 13, 21\n" +
	`Die Würfel sind gefallen. Всё течёт. 知之為知之，不知為不知。 What is the capital of France, and why is the sky blue at noon? `

// Prompts returns the prompts of an examination: short ones, and some of growing length.
func Prompts() []string {
	return []string{"The capital of France is", "Count: 1, 2, 3, 4, 5,", paragraph, strings.Repeat(paragraph, 3), "Once upon a time"}
}
