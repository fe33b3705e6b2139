package gguf

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"time"
)

const (
	ratePiece  = 1 << 20                // bytes read at once
	ratePieces = 16                     // most pieces
	rateLeast  = 2                      // pieces that are read however long they take
	rateTime   = 100 * time.Millisecond // after which no further piece is begun
)

// ReadRate measures how fast the files of a model (see Parts) are read, in bytes per
// second. It reads pieces of 1 MiB at random places for about 100 ms. What the system has
// cached counts as read that fast, because a mapping finds it there too. It is 0 for
// files without bytes. Errors name the file.
func ReadRate(paths []string) (int64, error) {
	var files []io.ReaderAt
	var sizes []int64
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			return 0, fmt.Errorf("measuring how fast the model is read: %w", err)
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return 0, fmt.Errorf("measuring how fast the model is read: %w", err)
		}
		files, sizes = append(files, f), append(sizes, info.Size())
	}
	start := time.Now()
	rate, err := readRate(files, sizes, func() time.Duration { return time.Since(start) }, rand.Int64N)
	if err != nil {
		return 0, fmt.Errorf("measuring how fast the model is read: %w", err)
	}
	return rate, nil
}

// readRate is ReadRate of opened files, with a clock and random numbers below n. All
// bytes are read with the same probability, but for those at the ends of files.
func readRate(files []io.ReaderAt, sizes []int64, clock func() time.Duration, random func(n int64) int64) (int64, error) {
	var all, done int64
	for _, size := range sizes {
		all += size
	}
	if all == 0 {
		return 0, nil
	}
	piece := make([]byte, ratePiece)
	began := clock()
	for i := 0; i < ratePieces && (i < rateLeast || clock()-began < rateTime); i++ {
		at, no := random(all), 0
		for at >= sizes[no] {
			at -= sizes[no]
			no++
		}
		n := min(ratePiece, sizes[no]-at)
		if _, err := files[no].ReadAt(piece[:n], at); err != nil {
			return 0, err
		}
		done += n
	}
	took := max(clock()-began, time.Nanosecond)
	return int64(min(float64(done)/took.Seconds(), 1<<50)), nil
}
