// Package npm installs the Node.js packages that tests need.
package npm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"ringmaster/internal/testenv"
	"ringmaster/tests/filelock"
)

// stamp holds the hash of the package-lock.json that node_modules was installed
// from. It is written last, so that a folder with the right stamp is complete.
const stamp = "node_modules/.installed-lock"

// Need skips a test where node or npm is missing.
func Need(t testing.TB) {
	t.Helper()
	for _, tool := range []string{"node", "npm"} {
		testenv.NeedTool(t, tool, "no "+tool+" here; this needs Node.js 20 or newer with npm")
	}
}

// Install puts the packages of dir/package-lock.json into dir/node_modules,
// unless they exist. Processes may call it at once: one installs, the others
// wait, and no process changes what is installed while another one uses it.
func Install(ctx context.Context, dir string) error {
	release, err := filelock.Lock(ctx, dir)
	if err != nil {
		return err
	}
	defer release()
	lock, err := os.ReadFile(filepath.Join(dir, "package-lock.json"))
	if err != nil {
		return err
	}
	sum := sha256.Sum256(lock)
	want := hex.EncodeToString(sum[:])
	have, err := os.ReadFile(filepath.Join(dir, stamp))
	if err == nil && string(have) == want {
		return nil
	}
	// A failure below must not leave a stamp beside packages it does not name.
	if err := os.Remove(filepath.Join(dir, stamp)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// Not npm ci, because it refuses a lock file that was made where the packages for
	// some other systems were not available. --no-save keeps to the lock file as well.
	cmd := exec.CommandContext(ctx, "npm", "install", "--no-save", "--ignore-scripts", "--no-audit", "--no-fund")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("npm install in %s: %w\n%s", dir, err, out)
	}
	return os.WriteFile(filepath.Join(dir, stamp), []byte(want), 0o644)
}
