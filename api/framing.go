package api

import "net/http"

// endAfter closes the connection after a request that a proxy may frame differently: what
// this server takes for a body, the proxy may take for the next request. RFC 9112, 6.1,
// demands that for a request with both Content-Length and Transfer-Encoding, and for
// HTTP/1.0 with Transfer-Encoding. net/http hides the field that it did not use, so the
// connection ends after every chunked request and after all of HTTP/1.0. Both are rare
// because clients announce the length of what they send.
func endAfter(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor == 1 && (r.ProtoMinor == 0 || len(r.TransferEncoding) > 0) {
		w.Header().Set("Connection", "close")
	}
}
