package snapshot_test

import (
	"bytes"
	"fmt"
	"log"

	"ringmaster/model/snapshot"
)

// A sequence of two tokens with one section, written and read. A reader of another model
// is refused before anything is copied.
func Example() {
	rows := []byte("the KV rows of a layer")
	section := func(memory []byte) snapshot.Section {
		return snapshot.Section{Name: "kv 0", Parts: [][]byte{memory}}
	}
	var file bytes.Buffer
	h := snapshot.Header{Model: "fingerprint", Layout: "rows, 1", Length: 2, Peak: 2}
	if err := snapshot.Write(&file, h, []int32{7, 11}, []snapshot.Section{section(rows)}); err != nil {
		log.Fatal(err)
	}
	_, err := snapshot.Read(bytes.NewReader(file.Bytes()), "another", "rows, 1", 100)
	fmt.Println(err)

	r, err := snapshot.Read(&file, "fingerprint", "rows, 1", 100)
	if err != nil {
		log.Fatal(err)
	}
	restored := make([]byte, len(rows))
	if err := r.Section(section(restored)); err != nil {
		log.Fatal(err)
	}
	fmt.Println(r.Tokens, string(restored))
	// Output:
	// a snapshot belongs to model "fingerprint", this is model "another": the snapshot belongs to something else
	// [7 11] the KV rows of a layer
}
