package tokenizer_test

import (
	"fmt"

	"ringmaster/model/tokenizer"
)

// Example makes a vocabulary of the 256 bytes and one merge, encodes a text and decodes it.
func Example() {
	v := tokenizer.Vocab{Model: "gpt2", Pre: "deepseek-v3", Merges: []string{"h i"}}
	for b := range 256 { // the character for each byte, as in GPT-2
		v.Tokens = append(v.Tokens, string(characterOf(b)))
	}
	v.Tokens = append(v.Tokens, "hi")
	t, err := tokenizer.New(v)
	if err != nil {
		panic(err)
	}
	ids := t.Encode("hi!", false)
	fmt.Println(ids, t.Decode(ids))
	// Output:
	// [256 33] hi!
}

func characterOf(b int) rune {
	printable := func(b int) bool { return b >= '!' && b <= '~' || b >= 0xA1 && b <= 0xFF && b != 0xAD }
	if printable(b) {
		return rune(b)
	}
	r := rune(256)
	for i := range b {
		if !printable(i) {
			r++
		}
	}
	return r
}
