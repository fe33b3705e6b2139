// What every library begins with.
#include <metal_stdlib>
#include <metal_simdgroup_matrix>

using namespace metal;

// Faults that a kernel reports; the numbers are those of encode.go.
enum { FAULT_ROW = 1 };

// report notes the first fault, which the next Flush tells.
inline void report(device atomic_uint *fault, uint code) {
	uint none = 0;
	while (none == 0 && !atomic_compare_exchange_weak_explicit(fault, &none, code, memory_order_relaxed,
	                                                          memory_order_relaxed)) {
	}
}
