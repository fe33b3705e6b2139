package distributed

import (
	"fmt"
	"unsafe"
)

// Argument checks. Errors wrap ErrArgument; an operation whose arguments fail a
// check has not begun.

// overlap reports whether a and b share memory.
func overlap(a, b []byte) bool {
	if len(a) == 0 || len(b) == 0 {
		return false
	}
	x, y := uintptr(unsafe.Pointer(unsafe.SliceData(a))), uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	return x < y+uintptr(len(b)) && y < x+uintptr(len(a))
}

// same reports whether a and b begin at the same byte.
func same(a, b []byte) bool { return unsafe.SliceData(a) == unsafe.SliceData(b) }

func checkDType(n int, dt DType) error {
	size := dt.Size()
	if size == 0 {
		return fmt.Errorf("%w: unknown %v", ErrArgument, dt)
	}
	if n%size != 0 {
		return fmt.Errorf("%w: %d bytes are not a whole number of %v elements of %d bytes", ErrArgument, n, dt, size)
	}
	return nil
}

// checkReduce checks the arguments of AllSum, AllMax and AllMin.
func checkReduce(dst, src []byte, dt DType) error {
	if len(dst) != len(src) {
		return fmt.Errorf("%w: dst has %d bytes, src %d", ErrArgument, len(dst), len(src))
	}
	if err := checkDType(len(src), dt); err != nil {
		return err
	}
	if overlap(dst, src) && !same(dst, src) {
		return fmt.Errorf("%w: dst and src overlap", ErrArgument)
	}
	return nil
}

// checkGather checks the arguments of AllGather on a rank of a group of size
// ranks.
func checkGather(size, rank int, dst, src []byte) error {
	n := len(src)
	if len(dst) != size*n {
		return fmt.Errorf("%w: dst has %d bytes for %d parts of %d", ErrArgument, len(dst), size, n)
	}
	if overlap(dst, src) && !same(dst[rank*n:], src) {
		return fmt.Errorf("%w: src overlaps dst outside this rank's part", ErrArgument)
	}
	return nil
}

// checkScatter checks the arguments of ReduceScatter on a rank of a group of
// size ranks.
func checkScatter(size, rank int, dst, src []byte, sizes []int, dt DType) error {
	if sizes == nil {
		if len(src) != size*len(dst) {
			return fmt.Errorf("%w: src has %d bytes for %d parts of %d", ErrArgument, len(src), size, len(dst))
		}
	} else {
		if err := checkParts(size, src, sizes); err != nil {
			return err
		}
		if len(dst) != sizes[rank] {
			return fmt.Errorf("%w: dst has %d bytes, but the part of rank %d has %d", ErrArgument, len(dst), rank, sizes[rank])
		}
	}
	for _, n := range sizes {
		if err := checkDType(n, dt); err != nil {
			return err
		}
	}
	if err := checkDType(len(dst), dt); err != nil {
		return err
	}
	if overlap(dst, src) {
		return fmt.Errorf("%w: dst and src overlap", ErrArgument)
	}
	return nil
}

// checkParts checks the parts of all ranks in a group of size ranks.
func checkParts(size int, all []byte, sizes []int) error {
	if len(sizes) != size {
		return fmt.Errorf("%w: %d sizes for %d ranks", ErrArgument, len(sizes), size)
	}
	total := 0
	for r, n := range sizes {
		if n < 0 || n > len(all)-total {
			return fmt.Errorf("%w: part %d has %d bytes and starts at byte %[5]d, but the buffer has %[4]d", ErrArgument, r, n, len(all), total)
		}
		total += n
	}
	if total != len(all) {
		return fmt.Errorf("%w: %d bytes for parts of %d in all", ErrArgument, len(all), total)
	}
	return nil
}

// checkGatherTo checks the arguments of Gather on a rank of a group of size
// ranks.
func checkGatherTo(size, rank int, dst, src []byte, sizes []int, root int) error {
	if err := checkRoot(size, root); err != nil {
		return err
	}
	if len(sizes) != size {
		return fmt.Errorf("%w: %d sizes for %d ranks", ErrArgument, len(sizes), size)
	}
	before := 0
	for r, n := range sizes {
		if n < 0 {
			return fmt.Errorf("%w: part %d has %d bytes", ErrArgument, r, n)
		}
		if r < rank {
			before += n
		}
	}
	if len(src) != sizes[rank] {
		return fmt.Errorf("%w: src has %d bytes, but the part of rank %d has %d", ErrArgument, len(src), rank, sizes[rank])
	}
	if rank != root {
		return nil
	}
	if err := checkParts(size, dst, sizes); err != nil {
		return err
	}
	if overlap(dst, src) && !same(dst[before:], src) {
		return fmt.Errorf("%w: src overlaps dst outside this rank's part", ErrArgument)
	}
	return nil
}

// checkPeer checks the peer of a Send or Recv on a rank of a group of size
// ranks.
func checkPeer(size, rank, peer int) error {
	if peer < 0 || peer >= size {
		return fmt.Errorf("%w: rank %d in a group of %d", ErrArgument, peer, size)
	}
	if peer == rank {
		return fmt.Errorf("%w: rank %d cannot send to itself", ErrArgument, rank)
	}
	return nil
}

// checkSendRecv checks the arguments of SendRecv on a rank.
func checkSendRecv(size, rank int, dst []byte, from int, src []byte, to int) error {
	if err := checkPeer(size, rank, from); err != nil {
		return err
	}
	if err := checkPeer(size, rank, to); err != nil {
		return err
	}
	if overlap(dst, src) {
		return fmt.Errorf("%w: dst and src overlap", ErrArgument)
	}
	return nil
}

// checkRoot checks the root of a Broadcast in a group of size ranks.
func checkRoot(size, root int) error {
	if root < 0 || root >= size {
		return fmt.Errorf("%w: root %d in a group of %d", ErrArgument, root, size)
	}
	return nil
}
