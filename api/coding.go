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
// bytes are the caller's to bound. An error of the request's own is an *Error; others are
// of the connection.
func (s *server) decoded(c *gin.Context, raw io.Reader, part *share) (r io.Reader, done func(), err error) {
	coding := strings.ToLower(strings.TrimSpace(strings.Join(c.Request.Header.Values("Content-Encoding"), ",")))
	from := &source{Reader: raw}
	state := int64(0)
	take := func(n int64) error {
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
		if err := take(gzipState); err != nil {
			return nil, nil, err
		}
		z, err := gzip.NewReader(from)
		if err != nil {
			return nil, nil, from.failure(coding, err)
		}
		return codedReader{z, from, coding}, func() { part.give(state) }, nil
	case "zstd":
		b := bufio.NewReaderSize(from, zstd.HeaderMaxSize)
		start, err := b.Peek(zstd.HeaderMaxSize)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, nil, from.failure(coding, err)
		}
		var header zstd.Header
		if err := header.Decode(start); err != nil {
			return nil, nil, from.failure(coding, err)
		}
		window, largest := max(header.WindowSize, leastWindow), uint64(max(s.MaxBody, leastWindow))
		switch {
		case header.Skippable: // the frame with data comes later
			window = largest
		case header.SingleSegment:
			window = max(window, header.FrameContentSize)
		}
		if window > largest {
			return nil, nil, s.bodyTooLarge()
		}
		if err := take(2 * int64(window)); err != nil { // what the decoder keeps, and a block
			return nil, nil, err
		}
		z, err := zstd.NewReader(b, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(window), zstd.WithDecoderMaxMemory(uint64(s.MaxBody)+1))
		if err != nil {
			return nil, nil, from.failure(coding, err)
		}
		return codedReader{z, from, coding}, func() { z.Close(); part.give(state) }, nil
	}
	c.Header("Accept-Encoding", codings)
	return nil, nil, &Error{Status: http.StatusUnsupportedMediaType, Code: "unsupported_content_encoding",
		Message: fmt.Sprintf("The request body has the content coding '%s'; send it plain, or as one of %s.", dialect.Printable(coding), codings)}
}

// source reads from the connection and keeps its error, which decoders may replace.
type source struct {
	io.Reader
	err error
}

// Read implements io.Reader.
func (s *source) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}

// failure is the error of a decoder that could not begin: the connection's if that failed,
// otherwise that of a body that is not in its coding.
func (s *source) failure(coding string, err error) error {
	if s.err != nil {
		return s.err
	}
	return &Error{Status: http.StatusBadRequest, Code: "invalid_body", Message: fmt.Sprintf("Could not decode the request body as %s: %v.", coding, err)}
}

// codedReader names the coding in the errors of its decoder. Those of the connection stay
// what they are.
type codedReader struct {
	io.Reader
	from   *source
	coding string
}

// Read implements io.Reader.
func (r codedReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	switch {
	case err == nil || err == io.EOF:
	case r.from.err != nil:
		err = r.from.err
	default:
		err = fmt.Errorf("as %s: %w", r.coding, err)
	}
	return n, err
}
