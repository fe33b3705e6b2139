package pull

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"

	"ringmaster/internal/pull/partial"
	"ringmaster/internal/safetext"
)

// magic begins every GGUF file.
var magic = []byte("GGUF")

// probe requests the first bytes of a file. It must be a GGUF file of the size and hash
// in the listing. The answer also shows whether the server serves ranges.
func (p *puller) probe(ctx context.Context, f *file) error {
	err := p.retry(ctx, func() (bool, error) {
		var link linked
		resp, err := p.get(context.WithValue(ctx, linkedKey{}, &link), f.url, "0-3")
		if err != nil {
			return false, err
		}
		defer resp.Body.Close()
		if err := p.status(resp, http.StatusOK, http.StatusPartialContent); err != nil {
			return false, err
		}
		link.read(resp.Header) // a mirror may serve the file itself
		size := resp.ContentLength
		if resp.StatusCode == http.StatusPartialContent {
			if _, _, size, err = contentRange(resp); err != nil {
				return false, final(err)
			}
		}
		body := p.watched(resp)
		defer body.Close()
		head := make([]byte, len(magic))
		if _, err := io.ReadFull(body, head); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
			return false, err
		}
		if !bytes.Equal(head, magic) {
			return false, final(inputError("%s is not a GGUF file (it begins with %q): is the address that of a page?", f.name, bytes.TrimRight(head, "\x00")))
		}
		return true, f.learn(size, resp.StatusCode == http.StatusPartialContent, resp.Header.Get("ETag"), link)
	})
	if err != nil && !errors.Is(err, ErrInput) {
		return fmt.Errorf("%s: %w", f.name, err)
	}
	return err
}

// learn takes the results of a probe and compares them with what is known.
func (f *file) learn(size int64, ranges bool, etag string, link linked) error {
	f.ranges, f.etag = ranges, etag
	switch {
	case size <= 0 && link.size > 0 && !ranges:
		size = link.size
	case size <= 0:
		return final(inputError("the server does not say how long %s is, so it cannot be checked: use another source", f.name))
	}
	if size > partial.MostBytes {
		return final(inputError("the server says that %s has %d bytes; at most %d are fetched: use another source", f.name, size, int64(partial.MostBytes)))
	}
	if link.size > 0 && link.size != size || f.known && f.size != size {
		return final(fmt.Errorf("the server has %d bytes of %s, and the hub says %d: its copy is broken; try later or another HF_ENDPOINT",
			size, f.name, max(link.size, f.size)))
	}
	if f.sha256 != "" && link.sha256 != "" && f.sha256 != link.sha256 {
		return final(fmt.Errorf("the hub lists %s with SHA-256 %s and serves it with %s: try again later", f.name, f.sha256, link.sha256))
	}
	if f.sha256 == "" {
		f.sha256 = link.sha256
	}
	f.size = size
	return nil
}

var rangeText = regexp.MustCompile(`^bytes (\d{1,18})-(\d{1,18})/(\d{1,18})$`)

// contentRange parses the header of that name: the first and last byte of the answer and
// the size of the file.
func contentRange(resp *http.Response) (first, last, size int64, err error) {
	text := resp.Header.Get("Content-Range")
	m := rangeText.FindStringSubmatch(text)
	if m == nil {
		return 0, 0, 0, fmt.Errorf("%s serves a range without saying which (Content-Range %q)", hostOf(resp), safetext.Line(text, safetext.Evidence))
	}
	var n [3]int64
	for i := range n {
		if n[i], err = strconv.ParseInt(m[i+1], 10, 64); err != nil {
			return 0, 0, 0, err
		}
	}
	return n[0], n[1], n[2], nil
}
