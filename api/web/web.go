// Package web has the pages that a server shows to people: the chat page and the
// page of the cluster, with all that they load, and what they need of a server
// beside the APIs: Markdown as safe HTML, and the state of the ranks.
//
// The pages are plain files of HTML, CSS and JavaScript modules, embedded as they
// are. They load nothing from elsewhere and have no script or style within the
// HTML, and the policy sent with each of them forbids both.
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
// loaded and only this server is called; what is written into a page as HTML has to
// come from the one function (policy "ringmaster" in files/markdown.js) that takes it
// from this server.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types ringmaster"

// Protect sets the headers of security of a response that a browser shows or runs.
func Protect(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()")
}

// File answers a request for one of the files. It reports false, and has written
// nothing, if there is none of this name.
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

// mediaType does not depend on the tables of the host.
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
