package server

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestServesWithoutAFullDisk: a disk that is full, has no room for another file, or is read
// only is a warning when the server starts, and never the end of it.
func TestServesWithoutAFullDisk(t *testing.T) {
	for name, options := range map[string]string{"full": "size=8k", "no inodes": "size=1m,nr_inodes=1", "read-only": "size=1m"} {
		t.Run(name, func(t *testing.T) {
			disk := t.TempDir()
			if err := unix.Mount("tmpfs", disk, "tmpfs", 0, options); err != nil {
				t.Skip("NOT CHECKED: no file system of its own without a namespace: ", err)
			}
			t.Cleanup(func() { require.NoError(t, unix.Unmount(disk, unix.MNT_DETACH)) })
			switch name {
			case "full":
				require.ErrorIs(t, os.WriteFile(filepath.Join(disk, "other"), make([]byte, 1<<20), 0o600), syscall.ENOSPC)
			case "read-only":
				require.NoError(t, unix.Mount("", disk, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
			}
			var log bytes.Buffer
			old := slog.Default()
			slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
			defer slog.SetDefault(old)
			dir := filepath.Join(disk, "cache")
			c, err := Disk{Dir: dir, Budget: 1 << 30}.open()
			require.NoError(t, err)
			require.Equal(t, 1, strings.Count(log.String(), "level=WARN"), log.String())
			require.Contains(t, log.String(), dir)
			c.close()
		})
	}
}
