// Package fakeverbs builds the verbs library without hardware, lib/, and lets
// tests create fabrics with it. README.md describes the script. It needs cgo
// and a C compiler.
//
// Each Fabric has its own copy of the library, so tests do not disturb each
// other: pass Path to verbs.Open. Ranks that are processes share a fabric
// through a directory, see Env.
package fakeverbs
