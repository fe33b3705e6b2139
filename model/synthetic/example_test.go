package synthetic_test

import (
	"fmt"
	"log"
	"os"
	"path/filepath"

	"ringmaster/gguf"
	"ringmaster/model/synthetic"
)

// A file with the header of a preset and another number of experts.
func Example() {
	c, err := synthetic.Preset("tiny")
	if err != nil {
		log.Fatal(err)
	}
	if err := c.Set("n_expert", "33"); err != nil {
		log.Fatal(err)
	}
	c.Holes = true // the large tensors take no disk space
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	written, err := c.WriteFile(filepath.Join(dir, "tiny.gguf"))
	if err != nil {
		log.Fatal(err)
	}
	f, err := gguf.Open(written.Files[0])
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	experts, _ := f.Uint("deepseek4.expert_count")
	gate, _ := f.Tensor("blk.1.ffn_gate_exps.weight")
	fmt.Println(f.Architecture(), experts, gate.Type, gate.Shape)
	// Output:
	// deepseek4 33 Q4_K [256 256 33]
}
