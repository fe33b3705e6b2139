package pull

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"ringmaster/internal/pull/partial"
)

// file is one GGUF file that is being fetched.
type file struct {
	name, url, path string
	size            int64
	known           bool   // size is from the listing
	sha256          string // "": the source gives none
	etag            string
	ranges          bool // the server serves ranges

	part *partial.File
}

// open opens the partial file and reads its state, if it belongs to this file.
func (f *file) open(p *puller) error {
	chunk := p.chunk
	if !f.ranges {
		chunk = f.size // one range from the beginning
	}
	part, dropped, err := partial.Open(f.path, partial.Identity{Size: f.size, SHA256: f.sha256, Tag: f.etag, Chunk: chunk})
	switch {
	case errors.Is(err, partial.ErrBusy):
		return inputError("%s: %v", f.path, err)
	case err != nil:
		return inputError("%v; or choose another directory with %s", err, p.DirSetting)
	}
	f.part = part
	if !f.ranges && !dropped && part.Done() > 0 && part.Done() < f.size {
		dropped = true // the server does not support ranges
		if err := part.Reset(); err != nil {
			return err
		}
	}
	if dropped {
		p.Report.Say(f.path + ".part does not match the source's file; fetching it from the beginning")
	}
	return nil
}

func closeAll(files []*file) (err error) {
	for _, f := range files {
		if f.part != nil {
			err = errors.Join(err, f.part.Close())
			f.part = nil
		}
	}
	return err
}

// fetch fetches what is missing, several ranges at once, and saves the state now and then
// and at the end, also if ctx ends.
func (f *file) fetch(ctx context.Context, p *puller) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var workers sync.WaitGroup
	for range min(p.Connections, f.part.Ranges()) {
		workers.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= f.part.Ranges() || ctx.Err() != nil {
					return
				}
				if err := p.retry(ctx, func() (bool, error) { return f.fetchRange(ctx, p, i) }); err != nil {
					cancel(err)
				}
			}
		})
	}
	ended := make(chan struct{})
	go func() {
		workers.Wait()
		close(ended)
	}()
	tick := time.NewTicker(p.saveEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if err := f.part.Save(); err != nil {
				cancel(err)
			}
		case <-ended:
			return errors.Join(context.Cause(ctx), f.part.Save())
		}
	}
}

// fetchRange makes one attempt to fetch the rest of a range.
func (f *file) fetchRange(ctx context.Context, p *puller, i int) (progress bool, err error) {
	have := f.part.Have(i)
	if !f.ranges && have < f.size {
		p.Report.Add(-have) // the server does not support ranges
		f.part.Drop(i)
		have = 0
	}
	offset, length := f.part.Range(i)
	if have == length {
		return true, nil
	}
	first, last := offset+have, offset+length-1
	ask := ""
	if f.ranges {
		ask = fmt.Sprintf("%d-%d", first, last)
	}
	resp, err := p.get(ctx, f.url, ask)
	if err != nil {
		return false, err
	}
	body := p.watched(resp)
	defer body.Close()
	if err := f.checkAnswer(p, resp, first, last); err != nil {
		return false, err
	}
	buffer := make([]byte, 256<<10)
	at := first
	for at <= last {
		n, err := body.Read(buffer[:min(int64(len(buffer)), last-at+1)])
		if n > 0 {
			if err := f.part.Append(i, buffer[:n]); err != nil {
				return false, final(fmt.Errorf("%w: free some space and run the same command again to resume", err))
			}
			at += int64(n)
			p.Report.Add(int64(n))
		}
		if err != nil && at <= last {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				err = fmt.Errorf("%s ended %s %d bytes early", hostOf(resp), f.name, last-at+1)
			}
			return f.ranges && at-first >= leastBytes, err
		}
	}
	return true, nil
}

// checkAnswer checks that an answer is the requested range of the file.
func (f *file) checkAnswer(p *puller, resp *http.Response, first, last int64) error {
	if f.sha256 == "" && f.etag != "" && resp.Header.Get("ETag") != f.etag && resp.StatusCode < 300 {
		return final(fmt.Errorf("%s has changed on %s meanwhile: run the same command again to fetch the new one", f.name, hostOf(resp)))
	}
	if !f.ranges {
		if err := p.status(resp, http.StatusOK); err != nil {
			return err
		}
		if resp.ContentLength >= 0 && resp.ContentLength != f.size {
			return fmt.Errorf("%s announces %d bytes of %s, but announced %d before", hostOf(resp), resp.ContentLength, f.name, f.size)
		}
		return nil
	}
	if resp.StatusCode == http.StatusOK || resp.StatusCode == http.StatusRequestedRangeNotSatisfiable {
		return fmt.Errorf("%s does not serve the requested range of %s", hostOf(resp), f.name)
	}
	if err := p.status(resp, http.StatusPartialContent); err != nil {
		return err
	}
	gotFirst, gotLast, size, err := contentRange(resp)
	if err != nil {
		return err
	}
	if gotFirst != first || gotLast > last || gotLast < first || size != f.size {
		return fmt.Errorf("%s serves bytes %d to %d of %d of %s, but %d to %d of %d were requested", hostOf(resp),
			gotFirst, gotLast, size, f.name, first, last, f.size)
	}
	return nil
}

// finish checks the SHA-256 and gives the file its name.
func (f *file) finish(ctx context.Context, p *puller) error {
	sum, err := f.part.Hash(ctx, p.Report.Add)
	if err != nil {
		return err
	}
	if f.sha256 != "" && sum != f.sha256 {
		return errors.Join(fmt.Errorf("%s has SHA-256 %s, expected %s: it was damaged on the way or at the source and was removed; run the same command again to fetch it",
			f.name, sum, f.sha256), f.part.Remove())
	}
	if err := f.part.Finish(); err != nil {
		return err
	}
	if f.sha256 == "" {
		p.Report.Say(fmt.Sprintf("%s: the source gives no checksum; SHA-256 is %s", f.path, sum))
	}
	return nil
}
