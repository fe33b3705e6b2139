// Package web has the pages that a server shows to people: the chat page and the cluster
// page with all that they load. It also has what they need from a server beside the APIs:
// Markdown as safe HTML (Render), and the form of the state of the ranks (Status).
//
// The pages are plain files of HTML, CSS and JavaScript modules, embedded as they are.
// They load nothing from elsewhere and have no script or style within the HTML, and the
// policy sent with each of them forbids both.
package web

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"mime"
	"net/http"
	"path"
	"time"
)

//go:embed files
var files embed.FS

// The names of the pages for File.
const (
	Chat    = "chat.html"
	Cluster = "cluster.html"
)

// policy is the Content-Security-Policy of every file. Only files of this server are
// loaded and only this server is called. HTML can enter a page only through the policy
// "ringmaster" in files/markdown.js, which takes it from this server.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types ringmaster"

// Protect sets the security headers of a response that a browser shows or runs.
func Protect(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()")
}

// File answers a request for one of the files. If none has this name, it returns false
// and writes nothing.
func File(w http.ResponseWriter, r *http.Request, name string) bool {
	text, err := files.ReadFile("files/" + name)
	if err != nil {
		return false
	}
	sum := sha256.Sum256(text)
	h := w.Header()
	Protect(h)
	h.Set("Content-Type", mediaType(name))
	// A browser asks each time, so that a newer server never runs with older scripts.
	h.Set("Cache-Control", "no-cache")
	h.Set("ETag", `"`+hex.EncodeToString(sum[:12])+`"`)
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(text))
	return true
}

// mediaType returns the media type of a file. It does not depend on the host's tables.
func mediaType(name string) string {
	switch path.Ext(name) {
	case ".html":
		return "text/html; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	}
	return mime.TypeByExtension(path.Ext(name))
}
