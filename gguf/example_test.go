package gguf_test

import (
	"bytes"
	"fmt"
	"io"
	"log"

	"ringmaster/gguf"
)

// A model in memory: two metadata keys and a matrix of two rows in Q8_0.
func ExampleRead() {
	w := gguf.NewWriter()
	w.Put("general.architecture", "deepseek4")
	w.Put("deepseek4.block_count", uint32(43))
	w.Add("output.weight", gguf.Q8_0, []int64{32, 2}, func(out io.Writer) error {
		data := make([]byte, gguf.Q8_0.RowBytes(64))
		values := make([]float32, 64)
		values[0], values[63] = 127, -254
		if err := gguf.Quantize(data, gguf.Q8_0, values); err != nil {
			return err
		}
		_, err := out.Write(data)
		return err
	})
	var file bytes.Buffer
	if _, err := w.WriteTo(&file); err != nil {
		log.Fatal(err)
	}

	f, err := gguf.Read("example", file.Bytes())
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
	fmt.Println(err)
	// Output:
	// deepseek4 43
	// Q8_0 [32 2] -254
	// example: key "deepseek4.block_count" has the wrong type: it is uint32 43; expected a string
}
