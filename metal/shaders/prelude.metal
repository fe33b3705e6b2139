// Prepended to every library.
#include <metal_stdlib>
#include <metal_simdgroup_matrix>

using namespace metal;

// Faults that a kernel reports; the numbers are those of encode.go.
enum { FAULT_ROW = 1 };

// report records the first fault; the next Flush returns it as an error.
inline void report(device atomic_uint *fault, uint code) {
	uint none = 0;
	while (none == 0 && !atomic_compare_exchange_weak_explicit(fault, &none, code, memory_order_relaxed,
	                                                          memory_order_relaxed)) {
	}
}
