// Package metalsim holds the tests of the software Metal device: see README.md.
// None of it is linked into the program.
package metalsim
