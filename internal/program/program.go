// Package program tells this program from other builds of it.
package program

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
)

// revision is the commit that the program was built from, as the go command recorded it,
// "" if it recorded none; modified reports whether the tree had changes.
func revision() (commit string, modified bool) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "", false
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			commit = s.Value
		case "vcs.modified":
			modified = s.Value == "true"
		}
	}
	return commit, modified
}

// Version names the program for people. Two programs can have the same version: without a
// commit it is "(devel)", and "+" stands for any changes.
func Version() string {
	commit, modified := revision()
	info, ok := debug.ReadBuildInfo()
	switch {
	case !ok:
		return "unknown"
	case len(commit) < 12:
		return info.Main.Version
	case modified:
		return commit[:12] + "+"
	}
	return commit[:12]
}

// CleanCommit is the commit whose source the program was built from without changes, "" if
// that is not known.
func CleanCommit() string {
	commit, modified := revision()
	if modified {
		return ""
	}
	return commit
}

// Platform is the system and processor that the program was built for.
func Platform() string { return runtime.GOOS + "/" + runtime.GOARCH }

// Hash is the SHA-256 of the program's file, in hexadecimal. It is computed once.
var Hash = sync.OnceValues(func() (string, error) {
	path, err := "/proc/self/exe", error(nil) // on Linux the file that runs, even if it has been replaced
	if runtime.GOOS != "linux" {
		path, err = os.Executable()
	}
	var f *os.File
	if err == nil {
		f, err = os.Open(path)
	}
	if err != nil {
		return "", fmt.Errorf("reading this program, whose hash tells it from other builds: %w; make its file readable for this user", err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("reading this program, whose hash tells it from other builds: %w", err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
})

// ID is the version and hash of the program. If its file cannot be read, the id is
// equal to no other, so that nothing of another build is taken for this one's.
var ID = sync.OnceValue(func() string {
	hash, err := Hash()
	if err != nil {
		slog.Warn("system_fingerprint and the prefix cache on disk hold for this process only", "error", err)
		hash = rand.Text()
	}
	return Version() + " " + hash
})
