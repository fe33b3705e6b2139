package pull

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"ringmaster/internal/network"
	"ringmaster/internal/safetext"
)

// newClient returns a client that bounds every wait for a header; watched bounds the
// bodies.
func newClient(header time.Duration, connections int) *http.Client {
	dial := network.Dialer()
	dial.Timeout, dial.KeepAlive = 15*time.Second, 15*time.Second
	return &http.Client{
		Transport: &http.Transport{
			Proxy:                 http.ProxyFromEnvironment,
			DialContext:           dial.DialContext,
			TLSHandshakeTimeout:   15 * time.Second,
			ResponseHeaderTimeout: header,
			IdleConnTimeout:       time.Minute,
			MaxIdleConnsPerHost:   connections,
			MaxConnsPerHost:       connections + 1,
			DisableCompression:    true, // lengths are those of the file
			// No HTTP/2, because its streams share one connection and several are wanted.
			TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{},
		},
		CheckRedirect: checkRedirect,
	}
}

// mostRedirects is twice what the hub and its stores need.
const mostRedirects = 6

// linked is what the hub says about a file before it redirects to the store.
type linked struct {
	sha256 string
	size   int64
}

type linkedKey struct{}

// checkRedirect keeps the token on its host and reads the hub's headers.
func checkRedirect(req *http.Request, via []*http.Request) error {
	first := via[0].URL
	switch {
	case len(via) > mostRedirects:
		return final(fmt.Errorf("%s redirects more than %d times", first.Host, mostRedirects))
	case req.URL.Scheme != "https" && via[len(via)-1].URL.Scheme == "https":
		return final(fmt.Errorf("%s redirects to %s, which is not encrypted", first.Host, safetext.Line(req.URL.Host, safetext.Evidence)))
	}
	if req.URL.Host != first.Host || req.URL.Scheme != first.Scheme {
		req.Header.Del("Authorization") // also on subdomains, where the library would keep it
	}
	if l, ok := req.Context().Value(linkedKey{}).(*linked); ok && req.Response != nil {
		l.read(req.Response.Header)
	}
	return nil
}

// read takes the size and the SHA-256 from the hub's headers, if present.
func (l *linked) read(h http.Header) {
	tag := strings.ToLower(strings.Trim(strings.TrimPrefix(h.Get("X-Linked-Etag"), "W/"), `"`))
	if sha256Text.MatchString(tag) {
		l.sha256 = tag
	}
	if n, err := strconv.ParseInt(h.Get("X-Linked-Size"), 10, 64); err == nil && n > 0 {
		l.size = n
	}
}

// get requests an address, or a range of it.
func (p *puller) get(ctx context.Context, address, bytes string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, final(err)
	}
	req.Header.Set("User-Agent", "ringmaster")
	if bytes != "" {
		req.Header.Set("Range", "bytes="+bytes)
	}
	if p.Token != "" && strings.HasPrefix(address, p.Endpoint+"/") {
		req.Header.Set("Authorization", "Bearer "+p.Token)
	}
	resp, err := p.client.Do(req)
	var u *url.Error
	if errors.As(err, &u) && !errors.As(err, new(*finalError)) {
		return nil, fmt.Errorf("%s: %w", req.URL.Host, safetext.Error(u.Err, safetext.Evidence)) // without the address, because a store's has a signature
	}
	return resp, err
}

// finalError is an error that another attempt does not fix.
type finalError struct{ err error }

func (e *finalError) Error() string { return e.err.Error() }
func (e *finalError) Unwrap() error { return e.err }

func final(err error) error { return &finalError{err} }

// waitError is an error of an answer that says how long to wait.
type waitError struct {
	err  error
	wait time.Duration
}

func (e *waitError) Error() string { return e.err.Error() }
func (e *waitError) Unwrap() error { return e.err }

// hostOf returns the host of an answer; a redirect may have named it.
func hostOf(resp *http.Response) string {
	return safetext.Line(resp.Request.URL.Host, safetext.Evidence)
}

// status returns an error that says what to do for the status of an answer, nil for those
// in wanted.
func (p *puller) status(resp *http.Response, wanted ...int) error {
	if slices.Contains(wanted, resp.StatusCode) {
		return nil
	}
	host, path, status := hostOf(resp), safetext.Line(resp.Request.URL.Path, safetext.Evidence), safetext.Line(resp.Status, safetext.Evidence)
	switch s := resp.StatusCode; {
	case s == http.StatusUnauthorized, s == http.StatusForbidden:
		cure := "check the name; if it is right, set HF_TOKEN to a token that may read it and accept the model's licence on its page"
		if p.Token != "" {
			cure = "the token in HF_TOKEN may not read it: check it, and that the model's licence is accepted on its page"
		}
		return final(inputError("%s refuses %s (%s): %s", host, path, status, cure))
	case s == http.StatusNotFound, s == http.StatusGone:
		return final(inputError("%s has no %s: check the name; a private repository needs HF_TOKEN", host, path))
	case s == http.StatusTooManyRequests, s == http.StatusServiceUnavailable:
		err := fmt.Errorf("%s answers %s", host, status)
		seconds, parsed := strconv.Atoi(resp.Header.Get("Retry-After"))
		if parsed != nil || seconds <= 0 {
			return err
		}
		wait := time.Duration(seconds) * time.Second
		if wait > p.mostAsked || wait <= 0 {
			return final(fmt.Errorf("%s answers %s and asks to wait for %d s: run the same command again after that", host, status, seconds))
		}
		return &waitError{err, wait}
	case s >= 500, s == http.StatusRequestTimeout:
		return fmt.Errorf("%s answers %s", host, status)
	}
	return final(fmt.Errorf("%s answers %s to a request for %s", host, status, path))
}

// retry runs attempt until it succeeds, its error is final, ctx ends, or too many in a
// row made no progress. The pauses grow.
func (p *puller) retry(ctx context.Context, attempt func() (progress bool, err error)) error {
	pause, failures := p.firstPause, 0
	for {
		progress, err := attempt()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if errors.As(err, new(*finalError)) {
			return err
		}
		if progress {
			pause, failures = p.firstPause, 0
		}
		if failures++; failures >= p.attempts {
			return fmt.Errorf("%w; no progress in %d attempts: run the same command again to resume", err, failures)
		}
		wait := pause + rand.N(pause/2+1) // so that connections that broke together do not return together
		if w := (*waitError)(nil); errors.As(err, &w) {
			wait = w.wait
		}
		p.Report.Say(fmt.Sprintf("%v; again in %v", err, wait.Round(100*time.Millisecond)))
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
		pause = min(2*pause, p.mostPause)
	}
}

// body is a response's body that ends when too little arrives for too long.
type body struct {
	resp  *http.Response
	timer *time.Timer
	stall time.Duration
	got   int
	late  atomic.Bool // the time was over
}

// watched returns the body of an answer; its Close closes the answer.
func (p *puller) watched(resp *http.Response) *body {
	b := &body{resp: resp, stall: p.stall}
	b.timer = time.AfterFunc(p.stall, func() {
		b.late.Store(true)
		resp.Body.Close()
	})
	return b
}

func (b *body) Read(to []byte) (int, error) {
	n, err := b.resp.Body.Read(to)
	if b.got += n; b.got >= leastBytes {
		b.got = 0
		b.timer.Reset(b.stall)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = fmt.Errorf("%s: %w", hostOf(b.resp), err)
		if b.late.Load() {
			err = fmt.Errorf("%s has sent almost nothing for %v", hostOf(b.resp), b.stall)
		}
	}
	return n, err
}

func (b *body) Close() error {
	b.timer.Stop()
	return b.resp.Body.Close()
}
