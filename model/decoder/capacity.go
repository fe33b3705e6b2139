package decoder

// Capacity is the capacity of a cache that has held length positions: first, doubled
// until it is enough, and at most the context. It depends on nothing else, so that the
// need of a request is known before it runs. Doubling makes copying cost amortised
// constant time.
func Capacity(first, length, context int) int {
	for first < length {
		first *= 2
	}
	return min(first, max(context, length))
}

// LastCapacity is the largest capacity below the whole context, 0 if first is not.
func LastCapacity(first, context int) (last int) {
	for ; first < context; first *= 2 {
		last = first
	}
	return last
}
