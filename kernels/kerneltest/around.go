package kerneltest

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/kernels"
	"ringmaster/kernels/reference"
)

// Around checks that a backend around another one passes on every op with its
// arguments: it runs one case of each op on the backend that wrap puts around the
// reference, and compares with the reference alone, bit for bit. It fails if an op has
// no case.
func Around(t *testing.T, wrap func(kernels.Backend) kernels.Backend) {
	plain := func(testing.TB) kernels.Backend { return reference.New() }
	around := func(testing.TB) kernels.Backend { return wrap(reference.New()) }
	done := map[string]bool{}
	for _, c := range tables() {
		if done[c.op] || c.rows > 64 {
			continue
		}
		done[c.op] = true
		t.Run(c.op, func(t *testing.T) {
			requireSame(t, "with the backend around", c.run(t, plain, c.rows), c.run(t, around, c.rows))
		})
	}
	for _, op := range ops() {
		require.True(t, done[op], "%s has no case of at most 64 rows: add one to package kerneltest", op)
	}
}

// ops are the methods of a backend that compute.
func ops() []string {
	others := map[string]bool{"Name": true, "Alloc": true, "Free": true, "Map": true, "CanCompute": true, "Submit": true, "Flush": true, "Close": true}
	var names []string
	for i, b := 0, reflect.TypeFor[kernels.Backend](); i < b.NumMethod(); i++ {
		if name := b.Method(i).Name; !others[name] {
			names = append(names, name)
		}
	}
	return names
}
