package gguf_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"strings"

	"ringmaster/gguf"
)

// A model: two metadata keys and a matrix of two rows in Q8_0.
func ExampleOpen() {
	w := gguf.NewWriter()
	w.Put("general.architecture", "deepseek4")
	w.Put("deepseek4.block_count", uint32(43))
	w.Add("output.weight", gguf.Q8_0, []int64{32, 2}, func(out io.Writer) error {
		// A block of Q8_0 is a scale in float16 and 32 codes of a byte.
		row := make([]byte, gguf.Q8_0.RowBytes(32))
		binary.LittleEndian.PutUint16(row, 0x4000) // 2.0
		row[2+31] = 0x81                           // -127
		_, err := out.Write(append(make([]byte, len(row)), row...))
		return err
	})
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "example.gguf")
	if err := w.WriteFile(path); err != nil {
		log.Fatal(err)
	}

	f, err := gguf.Open(path)
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	blocks, _ := f.Uint("deepseek4.block_count")
	fmt.Println(f.Architecture(), blocks)

	output, _ := f.Tensor("output.weight")
	row := make([]float32, output.Shape[0])
	second := output.Data[output.Type.RowBytes(len(row)):]
	if err := gguf.Dequantize(row, output.Type, second); err != nil {
		log.Fatal(err)
	}
	fmt.Println(output.Type, output.Shape, row[31])

	_, err = f.RequireString("deepseek4.block_count")
	fmt.Println(strings.TrimPrefix(err.Error(), dir))
	// Output:
	// deepseek4 43
	// Q8_0 [32 2] -254
	// /example.gguf: key "deepseek4.block_count" has the wrong type: it is uint32 43; expected a string
}
