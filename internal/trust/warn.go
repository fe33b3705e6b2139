package trust

import (
	"fmt"
	"log/slog"
	"os"
	"runtime"
)

// WarnIfOthersMay logs a file that gives every user of the host one of the permissions.
// It is not an error, because orchestrators mount secrets like that when the only user is
// the server.
func WarnIfOthersMay(path string, permissions os.FileMode, what string) {
	info, err := os.Stat(path)
	if err == nil && runtime.GOOS != "windows" && info.Mode().Perm()&permissions != 0 {
		slog.Warn("every user of this host can read or change the "+what, "file", path, "mode", fmt.Sprintf("%04o", info.Mode().Perm()), "remedy", "chmod o-rwx "+path)
	}
}
