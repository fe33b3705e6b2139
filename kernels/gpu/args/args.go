// Package args has the argument structs of the kernels of GPUs as headers that C and the
// shading languages read alike (GLSL with scalar layout), as text for those that compile
// kernels at run time.
package args

import "embed"

// Files are the headers by their names.
//
//go:embed *.h
var Files embed.FS
