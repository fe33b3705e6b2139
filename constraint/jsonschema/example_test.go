package jsonschema_test

import (
	"context"
	"fmt"

	"ringmaster/constraint"
	"ringmaster/constraint/jsonschema"
)

// byteTokens is a vocabulary of the 256 bytes and an end.
type byteTokens struct{}

func (byteTokens) Size() int             { return 257 }
func (byteTokens) Added(int32) bool      { return false }
func (byteTokens) IsEnd(id int32) bool   { return id == 256 }
func (byteTokens) Bytes(id int32) []byte { return []byte{byte(id)}[:min(1, 256-id)] }

// Example compiles a schema and prints which bytes may follow a part of an
// answer, and whether it may end.
func Example() {
	e, err := jsonschema.Compile([]byte(`{"enum": [10, 12, 345]}`), jsonschema.Options{})
	if err != nil {
		panic(err)
	}
	g, err := constraint.Compile(e, constraint.NewVocabulary(byteTokens{}), nil)
	if err != nil {
		panic(err)
	}
	m := g.Matcher(byteTokens{}, constraint.NewWork())
	for i := range 3 {
		allowed := make([]uint64, (257+63)/64)
		if err := m.Mask(context.Background(), allowed); err != nil {
			panic(err)
		}
		var may []string
		for id := range 256 {
			if allowed[id/64]>>(id%64)&1 != 0 {
				may = append(may, string(rune(id)))
			}
		}
		fmt.Println(may, allowed[4]&1 != 0)
		if i < 2 {
			if err := m.Accept(int32("12"[i])); err != nil {
				panic(err)
			}
		}
	}
	// Output:
	// [1 3] false
	// [0 2] false
	// [] true
}
