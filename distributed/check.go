package distributed

import (
	"fmt"
	"unsafe"
)

// The checks of arguments that every transport makes. Errors wrap ErrArgument;
// an operation that fails them has not begun.

// overlap tells whether a and b share memory.
func overlap(a, b []byte) bool {
	if len(a) == 0 || len(b) == 0 {
		return false
	}
	x, y := uintptr(unsafe.Pointer(unsafe.SliceData(a))), uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	return x < y+uintptr(len(b)) && y < x+uintptr(len(a))
}

// same tells whether a and b begin at the same byte.
func same(a, b []byte) bool { return unsafe.SliceData(a) == unsafe.SliceData(b) }

func checkDType(n int, dt DType) error {
	size := dt.Size()
	if size == 0 {
		return fmt.Errorf("%w: unknown %v", ErrArgument, dt)
	}
	if n%size != 0 {
		return fmt.Errorf("%w: %d bytes are no whole number of %v, %d bytes each", ErrArgument, n, dt, size)
	}
	return nil
}

// CheckReduce checks the arguments of AllSum, AllMax and AllMin.
func CheckReduce(dst, src []byte, dt DType) error {
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

// CheckGather checks the arguments of AllGather on a rank of a group of size.
func CheckGather(size, rank int, dst, src []byte) error {
	n := len(src)
	if len(dst) != size*n {
		return fmt.Errorf("%w: dst has %d bytes for %d parts of %d", ErrArgument, len(dst), size, n)
	}
	if overlap(dst, src) && !same(dst[rank*n:], src) {
		return fmt.Errorf("%w: src overlaps dst and is not its own place in it", ErrArgument)
	}
	return nil
}

// CheckScatter checks the arguments of SumScatter in a group of size.
func CheckScatter(size int, dst, src []byte, dt DType) error {
	if len(src) != size*len(dst) {
		return fmt.Errorf("%w: src has %d bytes for %d chunks of %d", ErrArgument, len(src), size, len(dst))
	}
	if err := checkDType(len(dst), dt); err != nil {
		return err
	}
	if overlap(dst, src) {
		return fmt.Errorf("%w: dst and src overlap", ErrArgument)
	}
	return nil
}

// CheckGatherV checks the arguments of StartAllGatherV in a group of size.
func CheckGatherV(size int, dst []byte, sizes []int) error {
	if len(sizes) != size {
		return fmt.Errorf("%w: %d sizes for %d ranks", ErrArgument, len(sizes), size)
	}
	total := 0
	for r, n := range sizes {
		if n < 0 || n > len(dst)-total {
			return fmt.Errorf("%w: part %d has %d bytes, dst %d with %d before it", ErrArgument, r, n, len(dst), total)
		}
		total += n
	}
	if total != len(dst) {
		return fmt.Errorf("%w: dst has %d bytes, the parts %d", ErrArgument, len(dst), total)
	}
	return nil
}

// CheckPeer checks the other side of Send and Recv on a rank.
func CheckPeer(size, rank, peer int) error {
	if peer < 0 || peer >= size {
		return fmt.Errorf("%w: rank %d in a group of %d", ErrArgument, peer, size)
	}
	if peer == rank {
		return fmt.Errorf("%w: rank %d cannot send to itself", ErrArgument, rank)
	}
	return nil
}

// CheckSendRecv checks the arguments of SendRecv on a rank.
func CheckSendRecv(size, rank int, dst []byte, from int, src []byte, to int) error {
	if err := CheckPeer(size, rank, from); err != nil {
		return err
	}
	if err := CheckPeer(size, rank, to); err != nil {
		return err
	}
	if overlap(dst, src) {
		return fmt.Errorf("%w: dst and src overlap", ErrArgument)
	}
	return nil
}

// CheckRoot checks the root of Broadcast in a group of size.
func CheckRoot(size, root int) error {
	if root < 0 || root >= size {
		return fmt.Errorf("%w: root %d in a group of %d", ErrArgument, root, size)
	}
	return nil
}
