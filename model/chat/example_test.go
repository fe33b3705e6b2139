package chat_test

import (
	"fmt"

	"ringmaster/model/chat"
)

// Example renders a conversation for DeepSeek V4 and parses an answer that arrives in
// two parts.
func Example() {
	f, err := chat.Named("v4")
	if err != nil {
		panic(err)
	}
	c := &chat.Conversation{
		Messages: []chat.Message{{Role: chat.System, Content: "Be brief."}, {Role: chat.User, Content: "2+2?"}},
		Options:  chat.Options{Thinking: true},
	}
	segments, err := f.Segments(c)
	if err != nil {
		panic(err)
	}
	for _, s := range segments {
		fmt.Printf("%v %s\n", s.Marker, s.Text)
	}
	p := f.Parser(c)
	for _, part := range []string{"Easy.</thi", "nk>4"} {
		d := p.Push(part)
		fmt.Printf("reasoning %q, text %q\n", d.Reasoning, d.Text)
	}
	// Output:
	// true <｜begin▁of▁sentence｜>
	// false Be brief.
	// true <｜User｜>
	// false 2+2?
	// true <｜Assistant｜>
	// true <think>
	// reasoning "Easy.", text ""
	// reasoning "", text "4"
}
