package api

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"
	"github.com/klauspost/compress/zstd"

	"ringmaster/api/dialect"
)

// codings are the content codings of bodies that the server decodes.
const codings = "gzip, zstd"

// leastWindow is the smallest window of zstd that a decoder may be limited to.
const leastWindow = 1 << 10

// gzipState is roughly what decoding gzip takes, in bytes: its window and tables.
const gzipState = 64 << 10

// decoded returns a reader of the body behind its content coding, and the bytes that
// decoding takes until done is called: they are part of the body's share. The decoded
// bytes are the caller's to bound.
func (s *server) decoded(c *gin.Context, raw io.Reader, part *share) (r io.Reader, done func(), failed *Error) {
	coding := strings.ToLower(strings.TrimSpace(strings.Join(c.Request.Header.Values("Content-Encoding"), ",")))
	state := int64(0)
	take := func(n int64) *Error {
		if !part.add(n) {
			return s.noBudget()
		}
		state = n
		return nil
	}
	switch coding {
	case "", "identity":
		return raw, func() {}, nil
	case "gzip", "x-gzip":
		if failed := take(gzipState); failed != nil {
			return nil, nil, failed
		}
		z, err := gzip.NewReader(raw)
		if err != nil {
			return nil, nil, s.badCoding(coding, err)
		}
		return codedReader{z, coding}, func() { part.give(state) }, nil
	case "zstd":
		b := bufio.NewReaderSize(raw, zstd.HeaderMaxSize)
		start, err := b.Peek(zstd.HeaderMaxSize)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, nil, s.badCoding(coding, err)
		}
		var header zstd.Header
		if err := header.Decode(start); err != nil {
			return nil, nil, s.badCoding(coding, err)
		}
		window := max(header.WindowSize, leastWindow)
		if header.SingleSegment {
			window = max(window, header.FrameContentSize)
		}
		if window > uint64(max(s.MaxBody, leastWindow)) {
			return nil, nil, s.bodyTooLarge()
		}
		if failed := take(2 * int64(window)); failed != nil { // what the decoder keeps, and a block
			return nil, nil, failed
		}
		z, err := zstd.NewReader(b, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(window), zstd.WithDecoderMaxMemory(uint64(s.MaxBody)+1))
		if err != nil {
			return nil, nil, s.badCoding(coding, err)
		}
		return codedReader{z, coding}, func() { z.Close(); part.give(state) }, nil
	}
	c.Header("Accept-Encoding", codings)
	return nil, nil, &Error{Status: http.StatusUnsupportedMediaType, Code: "unsupported_content_encoding",
		Message: fmt.Sprintf("The request body has the content coding '%s'; send it plain, or as one of %s.", dialect.Printable(coding), codings)}
}

// badCoding is the error of a body that is not in its coding, or could not be read.
func (s *server) badCoding(coding string, err error) *Error {
	var own *Error
	if errors.As(err, &own) {
		return own
	}
	return &Error{Status: http.StatusBadRequest, Code: "invalid_body", Message: fmt.Sprintf("Could not decode the request body as %s: %v.", coding, err)}
}

// codedReader names the coding in the errors of its decoder. Those of the connection stay
// what they are, wrapped.
type codedReader struct {
	io.Reader
	coding string
}

// Read implements io.Reader.
func (r codedReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err != nil && err != io.EOF {
		err = fmt.Errorf("as %s: %w", r.coding, err)
	}
	return n, err
}
