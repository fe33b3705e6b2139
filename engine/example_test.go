package engine_test

import (
	"context"
	"errors"
	"fmt"
	"io"

	"ringmaster/engine"
	"ringmaster/engine/enginetest"
)

// Example starts an engine on a scripted model, submits a prompt and reads the answer.
func Example() {
	ctx := context.Background()
	e, err := engine.New(enginetest.Script("Hello!"), enginetest.Vocabulary{}, engine.Options{})
	if err != nil {
		panic(err)
	}
	defer e.Close(ctx)
	stream, err := e.Submit(ctx, engine.Request{Prompt: enginetest.Vocabulary{}.Encode("Hi"), MaxTokens: 16})
	if err != nil {
		panic(err)
	}
	defer stream.Close()
	answer, last := "", engine.Event{}
	for {
		event, err := stream.Next(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			panic(err)
		}
		answer, last = answer+event.Text, event
	}
	fmt.Println(answer)
	fmt.Println(last.Finish, last.Usage.Prompt, last.Usage.Completion)
	// Output:
	// Hello!
	// stop 2 7
}
