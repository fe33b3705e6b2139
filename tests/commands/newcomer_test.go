package commands

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
)

var newcomerIn = flag.String("newcomer", "", "make a fresh Debian in this folder, which must not exist, and try there what a new user does; see scripts/newcomer.sh")

// suite is the Debian 12 of README.md.
const suite = "bookworm"

// needed is what README.md says that a new user must have, and what its examples use.
const needed = "git curl openssl ca-certificates"

// TestNewcomer tries what a new user does on a fresh Debian in a chroot: what README.md
// says is needed, a clone, a build, a first question, and a verified cluster of three
// ranks with keys, TLS, pages and metrics, by the commands of the documents alone. What the
// least Debian lacks and neither README.md nor the scripts install is not there. The
// network is that of this host. Go is a copy of this host's, in place of the archive that
// README.md links.
func TestNewcomer(t *testing.T) {
	if *newcomerIn == "" {
		t.Skip("NOT CHECKED: a new user on a fresh Debian is tried by scripts/newcomer.sh")
	}
	b := freshDebian(t, *newcomerIn)
	commands := all(t)
	shell := b.shell
	b.run(t, step{}, "apt-get update -qq && apt-get install -y -qq --no-install-recommends "+needed+" >&2 && git clone -q /srv/ringmaster.git ~/ringmaster")
	b.shell = func(text string) []string { return shell("cd ~/ringmaster && " + text) }
	run := func(steps ...step) {
		for _, s := range steps {
			began := time.Now()
			b.run(t, s, s.find(t, commands).text)
			t.Logf("%v: %s", time.Since(began).Round(time.Millisecond), s.has)
		}
	}
	run(step{document: readme, has: "scripts/run.sh", swaps: []swap{{"", " --listen {one}", otherPort}}, serves: "one"},
		step{document: readme, has: "\"temperature\": 0\n", swaps: []swap{toOne}, check: asShown})
	for _, s := range protected {
		for i, w := range s.swaps {
			if w == scripts {
				s.swaps = append(append([]swap(nil), s.swaps[:i]...), s.swaps[i+1:]...)
				break
			}
		}
		run(s)
	}
}

// freshDebian makes a Debian in a folder, which is removed with the test.
func freshDebian(t *testing.T, folder string) *bed {
	require.Equal(t, "linux", runtime.GOOS, "a chroot of Debian needs Linux")
	require.Zero(t, os.Getuid(), "a chroot needs root")
	folder, err := filepath.Abs(folder)
	require.NoError(t, err)
	here, err := filepath.Abs(root)
	require.NoError(t, err)
	require.False(t, strings.HasPrefix(folder+"/", here+"/"), "%s is in the repository", folder)
	require.NoError(t, os.Mkdir(folder, 0o755))
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(folder)) })
	host := func(args ...string) string {
		ctx := testenv.Within(t, 20*time.Minute)
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		var errs bytes.Buffer
		cmd.Stderr = &errs
		out, err := cmd.Output()
		require.NoError(t, err, "%v: %s %s", args, out, &errs)
		return strings.TrimSpace(string(out))
	}
	began := time.Now()
	host("debootstrap", "--variant=minbase", suite, folder)
	t.Logf("%v: debootstrap", time.Since(began).Round(time.Second))
	host("cp", "/etc/resolv.conf", filepath.Join(folder, "etc/resolv.conf"))
	host("cp", "-a", host("go", "env", "GOROOT"), filepath.Join(folder, "usr/local/go"))
	require.NoError(t, os.MkdirAll(filepath.Join(folder, "srv"), 0o755))
	host("git", "clone", "-q", "--bare", here, filepath.Join(folder, "srv/ringmaster.git"))
	proxy := host("go", "env", "GOPROXY")
	trusted := "/etc/ssl/certs/ca-certificates.crt" // whom this host trusts, for Go's modules
	if file := os.Getenv("SSL_CERT_FILE"); file != "" {
		trusted = file
	}
	host("cp", "-L", trusted, filepath.Join(folder, "srv/certificates.crt"))
	dir := filepath.Join(folder, "root/ringmaster")
	require.NoError(t, os.Mkdir(dir, 0o755)) // the commands run here, also the one that clones into it
	b := &bed{dir: dir, names: map[string]string{}, limit: time.Hour}
	b.shell = func(text string) []string {
		// Mounts and processes end with unshare.
		return []string{"unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c",
			`mount -t proc proc "$1/proc" && mount --rbind /dev "$1/dev" && exec chroot "$1" /usr/bin/env -i HOME=/root TERM=dumb LANG=C.UTF-8 \
				PATH=/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin GOPROXY="$2" SSL_CERT_FILE=/srv/certificates.crt bash -ec "$3"`,
			"sh", folder, proxy, text}
	}
	return b
}
