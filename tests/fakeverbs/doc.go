// Package fakeverbs builds the verbs library without hardware, lib/, and lets tests
// create fabrics with it. README.md describes the script. It needs cgo and a C compiler.
//
//	f := fakeverbs.New(t, "device a\ndevice b host=1\ncable a b\n")
//	lib, err := verbs.Open(f.Path)
//
// Each Fabric has its own copy of the library, so that tests do not disturb each other.
// Ranks that are processes share a fabric through a directory, see Env.
package fakeverbs
