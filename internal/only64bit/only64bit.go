// Package only64bit ends a build for a 32-bit system with a message that says so.
// Sizes of tensors and of files are ints, which need 64 bits, and a model file is
// mapped whole. Without the message such a build ends in errors of overflow, or,
// where it does not, in a program that computes wrong sizes. The packages that
// the others are built on import it.
package only64bit
