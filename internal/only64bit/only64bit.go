// Package only64bit makes a build for a 32-bit system fail with a message that says so,
// because sizes of tensors and of files are ints, which need 64 bits, and a model file is
// mapped whole. Without the message such a build ends in errors of overflow, or succeeds
// with a program that computes wrong sizes. The packages that the others are built on
// import it.
package only64bit
