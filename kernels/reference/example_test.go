package reference_test

import (
	"fmt"
	"log"

	"ringmaster/kernels"
	"ringmaster/kernels/reference"
)

// One op: memory from the backend, the call, and Flush before the result is read.
func Example() {
	b := reference.New()
	defer b.Close()
	x, err := kernels.Make[float32](b, 2*3)
	if err != nil {
		log.Fatal(err)
	}
	out, err := kernels.Make[float32](b, 2*3)
	if err != nil {
		log.Fatal(err)
	}
	copy(x, []float32{1, 2, 2, 3, 0, 4}) // [2][3]
	b.RMSNorm(out, x, nil, 2, 3, 0)
	if err := b.Flush(); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%.3f\n%.3f\n", out[:3], out[3:])
	// Output:
	// [0.577 1.155 1.155]
	// [1.039 0.000 1.386]
}

// A call that breaks the contract panics with the op and the argument.
func Example_misuse() {
	b := reference.New()
	defer b.Close()
	defer func() { fmt.Println(recover()) }()
	x, err := kernels.Make[float32](b, 4)
	if err != nil {
		log.Fatal(err)
	}
	b.Hadamard(x, 1, 3)
	// Output:
	// Hadamard: dim is 3, must be a power of two
}
