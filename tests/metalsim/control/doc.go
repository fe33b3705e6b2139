// Package control asks the software Metal device of this process for its counters,
// and lets time pass for it. It is empty without the build tag metalsim.
package control
