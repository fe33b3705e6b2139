package pull

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzHeaders: from any headers of a server, only numbers that are not negative, a hash,
// and the address of a page on the same host are taken.
func FuzzHeaders(f *testing.F) {
	f.Add("bytes 0-99/100", `W/"`+"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"+`"`, "100", `</api?cursor=x>; rel="next"`)
	f.Add("bytes 99-0/9223372036854775808", `"x"`, "-1", `<//evil/x>;rel="next", <https://hub@evil/>; rel="next"`)
	f.Add("bytes */100", "", "1e3", `<http://hub/>; rel="next"`)
	f.Fuzz(func(t *testing.T, rangeOf, tag, size, link string) {
		now := &url.URL{Scheme: "https", Host: "hub", Path: "/api"}
		h := http.Header{"Content-Range": {rangeOf}, "X-Linked-Etag": {tag}, "X-Linked-Size": {size}, "Link": {link}}
		first, last, whole, err := contentRange(&http.Response{Header: h, Request: &http.Request{URL: now}})
		require.True(t, err != nil || first >= 0 && last >= 0 && whole >= 0)
		var l linked
		l.read(h)
		require.GreaterOrEqual(t, l.size, int64(0))
		require.Contains(t, []int{0, 64}, len(l.sha256))
		next, err := (&puller{}).nextPage(now.String(), h)
		if err == nil && next != "" {
			u, err := url.Parse(next)
			require.NoError(t, err)
			require.Equal(t, "https", u.Scheme)
			require.Equal(t, "hub", u.Host)
		}
	})
}
