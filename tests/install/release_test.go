package install

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
)

// TestRelease: the archives have the checksums that are written beside them, the programs
// of one kind are static, one for this machine runs, the same source gives the same bytes
// (shown for one architecture), and what get.sh installs has been compared with its checksum.
func TestRelease(t *testing.T) {
	testenv.Need(t, testenv.Full, "release archives")
	var out string
	served := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.FileServer(http.Dir(out)).ServeHTTP(w, r) }))
	defer served.Close()
	build := func(env ...string) []string {
		out = t.TempDir()
		said := run(t, env, "scripts/release.sh", out, served.URL+"/")
		require.Contains(t, said, "NOT BUILT: darwin")
		return strings.Split(strings.TrimSpace(string(testenv.ReadFile(t, out+"/SHA256SUMS"))), "\n")
	}
	// One architecture shows that linking and packing repeat themselves; compiling does not
	// happen twice, because the build cache has the packages.
	again, sums := build("ARCHES="+runtime.GOARCH), build()
	require.Len(t, again, 3, "static, for RDMA, the source")
	require.Subset(t, sums, again)
	source := "" // the checksum of its archive
	for _, line := range sums {
		f := strings.Fields(line)
		sum := sha256.Sum256(testenv.ReadFile(t, filepath.Join(out, f[1])))
		require.Equal(t, f[0], hex.EncodeToString(sum[:]))
		run(t, nil, "tar", "-C", out, "-xzf", filepath.Join(out, f[1]))
		name := strings.TrimSuffix(f[1], ".tar.gz")
		if strings.HasSuffix(name, "-source") {
			require.FileExists(t, filepath.Join(out, name, "go.mod"))
			source = f[0]
			continue
		}
		program := filepath.Join(out, name, "usr/local/bin/ringmaster")
		require.Equal(t, !strings.HasSuffix(name, "-rdma"), static(t, program), name)
		require.FileExists(t, filepath.Join(filepath.Dir(program), "mkmodel"))
		if strings.Contains(name, "-"+runtime.GOARCH) {
			require.Contains(t, run(t, nil, program, "--version"), "ringmaster version")
		}
	}
	t.Run("arm64", func(t *testing.T) {
		if runtime.GOARCH != "arm64" {
			testenv.NeedTool(t, "aarch64-linux-gnu-gcc", "aarch64-linux-gnu-gcc is not installed")
		}
		require.Contains(t, strings.Join(sums, "\n"), "-linux-arm64.tar.gz")
	})
	t.Run("group", func(t *testing.T) { testGroup(t, out) })
	t.Run("get.sh", func(t *testing.T) { testGet(t, out) }) // it spoils an archive
	t.Run("formula", func(t *testing.T) {
		text := string(testenv.ReadFile(t, out+"/ringmaster.rb"))
		require.NotRegexp(t, "@[A-Z0-9]+@", text)
		require.Contains(t, text, served.URL+"/ringmaster-")
		require.Contains(t, text, `sha256 "`+source+`"`)
	})
}

// static reports whether a program needs no dynamic linker.
func static(t *testing.T, path string) bool {
	t.Helper()
	f, err := elf.Open(path)
	require.NoError(t, err)
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return false
		}
	}
	return true
}

// testGet installs by get.sh from a served release; a changed archive is refused, and
// leaves nothing.
func testGet(t *testing.T, out string) {
	prefix := filepath.Join(t.TempDir(), "a prefix")
	get := func() (string, error) {
		cmd := exec.CommandContext(t.Context(), "sh", out+"/get.sh")
		cmd.Env = append(os.Environ(), "PREFIX="+prefix)
		said, err := cmd.CombinedOutput()
		return string(said), err
	}
	said, err := get()
	require.NoError(t, err, said)
	require.Contains(t, said, "installed ringmaster version")
	require.True(t, static(t, prefix+"/bin/ringmaster"))
	require.FileExists(t, prefix+"/share/man/man1/ringmaster-serve.1")
	require.NoDirExists(t, prefix+"/lib", "the unit names /usr/local")
	again := exec.CommandContext(t.Context(), prefix+"/bin/ringmaster", "serve", "--listen", "127.0.0.1:0")
	require.NoError(t, again.Start())
	said, err = get()
	require.NoError(t, errors.Join(err, again.Process.Kill()), "over a program that runs: %s", said)
	require.Error(t, again.Wait(), "it was killed")
	require.NoError(t, os.RemoveAll(prefix))

	archives, err := filepath.Glob(out + "/ringmaster-*-linux-" + runtime.GOARCH + ".tar.gz")
	require.NoError(t, err)
	require.Len(t, archives, 1)
	data := testenv.ReadFile(t, archives[0])
	data[len(data)/2] ^= 1
	require.NoError(t, os.WriteFile(archives[0], data, 0o644))
	said, err = get()
	require.Error(t, err)
	require.Contains(t, said, "nothing is installed")
	require.NoDirExists(t, prefix)
}

// TestGetRefuses: get.sh says which machine it has no program for.
func TestGetRefuses(t *testing.T) {
	bin := t.TempDir()
	require.NoError(t, os.WriteFile(bin+"/uname", []byte("#!/bin/sh\n[ \"$1\" = -s ] && echo Linux || echo riscv64\n"), 0o755))
	text := bytes.ReplaceAll(testenv.ReadFile(t, root+"/packaging/get.sh"), []byte("@URL@"), []byte("http://127.0.0.1:9"))
	cmd := exec.CommandContext(t.Context(), "sh")
	cmd.Stdin, cmd.Env = bytes.NewReader(text), append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "PREFIX="+bin+"/x")
	said, err := cmd.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(said), "no program for riscv64")
}
