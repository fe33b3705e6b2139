// Package install tests how the program is installed: the files of make install, the
// systemd unit, launchd's property list, and the release archives.
package install

import (
	"encoding/xml"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
)

const root = "../.."

// run executes a command in the root of the repository.
func run(t *testing.T, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env = root, append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s %v: %s", name, args, out)
	return string(out)
}

// installed is the directory into which the program was installed as by make install.
func installed(t *testing.T) string {
	dir := t.TempDir()
	program, err := testenv.BuildProgram(t.Context(), dir)
	require.NoError(t, err)
	dest := filepath.Join(dir, "dest")
	mkmodel := filepath.Join(dir, "mkmodel")
	run(t, nil, "go", "build", "-o", mkmodel, "./cmd/mkmodel")
	run(t, []string{"DESTDIR=" + dest, "PREFIX=/opt/rm", "SOURCE_DATE_EPOCH=86400"}, "scripts/install.sh", program, mkmodel)
	return filepath.Join(dest, "opt/rm")
}

// TestInstall: the installed program runs, the completions are scripts of their shells,
// there is a page for each command, and systemd takes the unit.
func TestInstall(t *testing.T) {
	dest := installed(t)
	require.Contains(t, run(t, nil, dest+"/bin/ringmaster", "--version"), "ringmaster version")
	run(t, nil, "bash", "-n", dest+"/share/bash-completion/completions/ringmaster")
	for _, c := range []string{"serve", "chat", "doctor", "plan", "verify", "pull", "rails-here", "bench"} {
		page := testenv.ReadFile(t, dest+"/share/man/man1/ringmaster-"+c+".1")
		require.Contains(t, string(page), `.TH "RINGMASTER-`+strings.ToUpper(c)+`" "1" "Jan 1970"`)
		require.NotContains(t, string(page), os.TempDir())
	}
	t.Run("documents", func(t *testing.T) { requireDocuments(t, dest) })
	unit := testenv.ReadFile(t, dest+"/lib/systemd/system/ringmaster.service")
	require.Contains(t, string(unit), "ExecStart=/opt/rm/bin/ringmaster serve")
	require.NotContains(t, string(unit), "@BINDIR@")

	t.Run("man", func(t *testing.T) {
		testenv.NeedTool(t, "man", "man is not installed")
		require.Contains(t, run(t, []string{"LC_ALL=C", "MANWIDTH=80"}, "man", "-l", "--warnings=mac", dest+"/share/man/man1/ringmaster-plan.1"), "--preset")
	})
	t.Run("unit", func(t *testing.T) {
		testenv.NeedTool(t, "systemd-analyze", "systemd-analyze is not installed")
		here := filepath.Join(t.TempDir(), "ringmaster.service") // with the program where it lies here
		require.NoError(t, os.WriteFile(here, []byte(strings.ReplaceAll(string(unit), "/opt/rm", dest)), 0o644))
		out := run(t, []string{"MANPATH=" + dest + "/share/man"}, "systemd-analyze", "verify", "--man=no", here)
		require.Empty(t, out, "systemd says nothing of a unit that is right")
		// Of 0 to 100, what systemd makes of the sandbox; without one it is 96.
		run(t, nil, "systemd-analyze", "security", "--offline=yes", "--threshold=25", "--no-pager", here)
	})
	t.Run("user", func(t *testing.T) {
		testenv.NeedTool(t, "systemd-sysusers", "systemd-sysusers is not installed")
		of := regexp.MustCompile(`(?m)^User=(\S+)$`).FindStringSubmatch(string(unit))
		require.NotNil(t, of)
		other := t.TempDir() // the root of a system that is not this one
		require.NoError(t, os.Mkdir(filepath.Join(other, "etc"), 0o755))
		run(t, nil, "systemd-sysusers", "--root="+other, dest+"/lib/sysusers.d/ringmaster.conf")
		for _, file := range []string{"passwd", "group"} {
			text := testenv.ReadFile(t, filepath.Join(other, "etc", file))
			require.Regexp(t, "(?m)^"+of[1]+":", string(text), file)
		}
	})
}

// requireDocuments requires that the programs that the installed README runs are installed,
// and that its links lead to files.
func requireDocuments(t *testing.T, dest string) {
	doc := filepath.Join(dest, "share/doc/ringmaster")
	readme := string(testenv.ReadFile(t, filepath.Join(doc, "README.md")))
	links := regexp.MustCompile(`\]\(([^()\s#]+)|src="([^"]+)"`).FindAllStringSubmatch(readme, -1)
	require.Greater(t, len(links), 20)
	for _, m := range links {
		file := m[1] + m[2]
		if !strings.Contains(file, ":") && !strings.HasPrefix(file, ".github/") {
			require.FileExists(t, filepath.Join(doc, file))
		}
	}
	programs := regexp.MustCompile(`(?m)^\| `+"`"+`([\w./-]+) `).FindAllStringSubmatch(readme, -1)
	require.Greater(t, len(programs), 10)
	for _, m := range programs {
		require.FileExists(t, filepath.Join(dest, "bin", m[1]))
	}
}

// TestInstallAnywhere: a PREFIX with characters that mean something to sed, to systemd or in
// XML gives files that name the program; one that no unit can have is refused.
func TestInstallAnywhere(t *testing.T) {
	dir := t.TempDir()
	program, err := testenv.BuildProgram(t.Context(), dir)
	require.NoError(t, err)
	prefix := filepath.Join(dir, "a & b|c %h $HOME <é>;#@BINDIR@")
	run(t, []string{"PREFIX=" + prefix, "DESTDIR="}, "scripts/install.sh", program)
	unit := testenv.ReadFile(t, prefix+"/lib/systemd/system/ringmaster.service")
	require.Contains(t, string(unit), `ExecStart="`+strings.ReplaceAll(prefix, "%", "%%")+`/bin/ringmaster" serve`)
	t.Run("unit", func(t *testing.T) {
		testenv.NeedTool(t, "systemd-analyze", "systemd-analyze is not installed")
		here := filepath.Join(t.TempDir(), "ringmaster.service")
		require.NoError(t, os.WriteFile(here, unit, 0o644))
		require.Empty(t, run(t, nil, "systemd-analyze", "verify", "--man=no", here))
	})
	run(t, []string{"PREFIX=" + prefix, "DESTDIR=", "SYSTEM=Darwin"}, "scripts/install.sh", program)
	list := testenv.ReadFile(t, prefix+"/share/doc/ringmaster/ringmaster.plist")
	var parsed struct {
		Programs []string `xml:"dict>array>string"`
	}
	require.NoError(t, xml.Unmarshal(list, &parsed))
	require.Contains(t, parsed.Programs, prefix+"/bin/ringmaster")
	for _, bad := range []string{"relative", "/a\nExecStartPre=/bin/false", "/a\r", "/a\n", `/a"b`, "/it's", `/a\b`} {
		cmd := exec.CommandContext(t.Context(), "scripts/install.sh", program)
		cmd.Dir, cmd.Env = root, append(os.Environ(), "PREFIX="+bad, "DESTDIR="+dir)
		out, err := cmd.CombinedOutput()
		require.Error(t, err, "%q", bad)
		require.Contains(t, string(out), "install.sh: PREFIX")
	}
}

// element is an XML element with those in it.
type element struct {
	XMLName  xml.Name
	Text     string    `xml:",chardata"`
	Children []element `xml:",any"`
}

// requireDicts requires keys and values in turns in each dictionary, and returns all keys.
func requireDicts(t *testing.T, e element) (keys []string) {
	t.Helper()
	if e.XMLName.Local == "dict" {
		require.Zero(t, len(e.Children)%2, "every key has a value")
	}
	for i, c := range e.Children {
		if e.XMLName.Local == "dict" {
			require.Equal(t, i%2 == 0, c.XMLName.Local == "key", "keys and values alternate")
		}
		if c.XMLName.Local == "key" {
			keys = append(keys, c.Text)
		}
		keys = append(keys, requireDicts(t, c)...)
	}
	return keys
}

// TestPropertyList: launchd's file is XML, with a value for each key of a dictionary.
func TestPropertyList(t *testing.T) {
	text := testenv.ReadFile(t, root+"/packaging/ringmaster.plist")
	var list element
	require.NoError(t, xml.Unmarshal(text, &list))
	require.Subset(t, requireDicts(t, list), []string{"Label", "ProgramArguments", "KeepAlive", "RunAtLoad"})
}

// TestContainerfile: what the container's file copies is there. It is not built.
func TestContainerfile(t *testing.T) {
	text := testenv.ReadFile(t, root+"/packaging/Containerfile")
	user := false
	for _, line := range strings.Split(string(text), "\n") {
		f := strings.Fields(line)
		if len(f) > 2 && f[0] == "COPY" && !strings.HasPrefix(f[1], "--") {
			for _, source := range f[1 : len(f)-1] {
				_, err := os.Stat(filepath.Join(root, source))
				require.NoError(t, err)
			}
		}
		user = user || len(f) > 1 && f[0] == "USER" && f[1] != "root"
	}
	require.True(t, user, "the server does not run as root")
}
