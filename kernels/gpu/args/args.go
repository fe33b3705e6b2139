// Package args has the argument structs of the kernels of GPUs as headers that C, the
// Metal shading language and GLSL (with scalar layout) read alike, as text for those that
// compile kernels at run time.
package args

import "embed"

// Files are the headers by their names.
//
//go:embed *.h
var Files embed.FS
