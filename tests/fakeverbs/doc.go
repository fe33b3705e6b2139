// Package fakeverbs builds the verbs library without hardware, lib/, and lets
// tests make a fabric of it. README.md describes the script. It needs cgo and a
// C compiler.
//
// Each Fabric is a copy of the library of its own, so tests do not disturb each
// other: give Path to verbs.Open. Ranks that are processes share a fabric
// through a directory, see Env.
package fakeverbs
