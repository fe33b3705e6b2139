// Package program identifies this build of the program.
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

// unstamped is the version of a program that was built outside of version control, as from
// an unpacked archive: nothing is known of its source.
const unstamped = "unknown (built without version control)"

// build is what the go command recorded when it built the program; nil if it recorded
// nothing.
func build() *debug.BuildInfo {
	info, _ := debug.ReadBuildInfo()
	return info
}

// revision is the commit that a program was built from, "" if none was recorded; modified
// reports whether the tree had changes.
func revision(info *debug.BuildInfo) (commit string, modified bool) {
	if info == nil {
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

// Version names the program for people: the commit that it was built from, with "+" for
// any changes; without a commit the version of its module, if it was installed by one.
// Two programs can have the same version.
func Version() string { return versionOf(build()) }

func versionOf(info *debug.BuildInfo) string {
	commit, modified := revision(info)
	switch {
	case len(commit) >= 12 && modified:
		return commit[:12] + "+"
	case len(commit) >= 12:
		return commit[:12]
	case info != nil && info.Main.Version != "" && info.Main.Version != "(devel)":
		return info.Main.Version
	}
	return unstamped
}

// CleanCommit returns the commit that the program was built from without changes, "" if
// that is not known.
func CleanCommit() string {
	commit, modified := revision(build())
	if modified {
		return ""
	}
	return commit
}

// Platform returns the system and processor that the program was built for.
func Platform() string { return runtime.GOOS + "/" + runtime.GOARCH }

// Hash returns the SHA-256 of the program's file, in hexadecimal. It is computed once.
var Hash = sync.OnceValues(func() (string, error) {
	path, err := "/proc/self/exe", error(nil) // on Linux the running file, even if it has been replaced
	if runtime.GOOS != "linux" {
		path, err = os.Executable()
	}
	var f *os.File
	if err == nil {
		f, err = os.Open(path)
	}
	if err != nil {
		return "", fmt.Errorf("reading this program's file to identify the build by its hash: %w; make it readable for this user", err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("reading this program's file to identify the build by its hash: %w", err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
})

// ID returns the version and hash of the program. If its file cannot be read, the id
// equals no other, so that nothing of another build is taken for this one's.
var ID = sync.OnceValue(func() string {
	hash, err := Hash()
	if err != nil {
		slog.Warn("system_fingerprint and the prefix cache on disk hold for this process only", "error", err)
		hash = rand.Text()
	}
	return Version() + " " + hash
})
