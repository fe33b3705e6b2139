package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/api/dialect"
	"ringmaster/gguf/gguftest"
	"ringmaster/internal/doctor"
	"ringmaster/internal/safetext"
	"ringmaster/internal/server"
	"ringmaster/internal/testenv"
	"ringmaster/model/decoder"
	"ringmaster/model/synthetic"
	"ringmaster/node"
)

// escapes are what a stranger could send to a terminal: sequences that clear it, set its
// title or answer for the user, text that runs backwards, lines that overwrite others.
const escapes = "\x1b[2J\x1b]0;owned\x07\u009b6n\r\u202eexe.\u2066\x7f"

// most is the longest text of a stranger that a command may print, with what is around it.
const most = 6000

// requireShown fails if a text would reach a terminal raw or without bound.
func requireShown(t *testing.T, text string) {
	t.Helper()
	require.Less(t, len(text), most)
	for _, r := range text {
		require.False(t, safetext.Unsafe(r), "%q in %q", r, text)
	}
}

// hostileServer answers requests by the path with raw bytes, status line and all.
func hostileServer(t *testing.T, answer func(path string) string) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				if r, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
					_, _ = io.Copy(io.Discard, r.Body)
					fmt.Fprint(c, answer(r.URL.Path))
				}
			}()
		}
	}()
	return "http://" + l.Addr().String()
}

// response is one with a body; the reason is as long and as hostile as it can be.
func response(status int, body string) string {
	return fmt.Sprintf("HTTP/1.1 %d %s\r\nConnection: close\r\nContent-Length: %d\r\nRetry-After: %s\r\n\r\n%s", status,
		strings.ReplaceAll(escapes, "\r", "")+strings.Repeat("x", 10000), len(body), strings.Repeat("9", 5000), body)
}

func quoted(t *testing.T, text string) string {
	b := testenv.JSON(t, text)
	return string(b)
}

// TestHostileServers: nothing that a server sends reaches the terminal of chat, verify and
// pull raw, or without bound, whatever part of an answer it is in.
func TestHostileServers(t *testing.T) {
	long := quoted(t, escapes+strings.Repeat(escapes, 2000))
	models := response(200, `{"data":[{"id":`+long+`}]}`)
	at := func(chat string) func(string) string {
		return func(path string) string {
			switch path {
			case "/v1/models":
				return models
			case "/readyz":
				return response(200, "")
			}
			return chat
		}
	}
	for name, answer := range map[string]func(string) string{
		"reason of a status":   func(string) string { return response(502, "") },
		"reason, unauthorized": func(string) string { return response(403, escapes) },
		"reason, busy":         func(string) string { return response(429, "") },
		"message of an error":  func(string) string { return response(500, `{"error":{"message":`+long+`}}`) },
		"body of an error":     func(string) string { return response(404, strings.Repeat(escapes, 3000)) },
		"no HTTP":              func(string) string { return strings.Repeat(escapes, 3000) + "\r\n\r\n" },
		"models are no JSON":   func(string) string { return response(200, escapes) },
		"error event":          at(response(200, "data: {\"error\":{\"message\":"+long+"}}\n\ndata: [DONE]\n\n")),
		"error event, bare":    at(response(200, "data: {\"error\":"+long+"}\n\ndata: [DONE]\n\n")),
		"event is no JSON":     at(response(200, "data: "+escapes+"\n\ndata: [DONE]\n\n")),
		"refused after models": at(response(500, `{"error":{"message":`+long+`}}`)),
	} {
		t.Run(name, func(t *testing.T) {
			url := hostileServer(t, answer)
			in, err := os.Open(os.DevNull)
			require.NoError(t, err)
			defer in.Close()
			out, err := os.Create(filepath.Join(t.TempDir(), "out"))
			require.NoError(t, err)
			defer out.Close()
			chat := newChat(in, out)
			chat.SetArgs([]string{"--url", url, "question"})
			chat.SilenceUsage, chat.SilenceErrors = true, true
			err = chat.ExecuteContext(t.Context())
			require.Error(t, err)
			requireShown(t, err.Error())
			shown := testenv.ReadFile(t, out.Name())
			requireShown(t, string(shown))

			text, err := command(t, "verify", "--url", url, "--tokens", "2")
			require.Error(t, err)
			requireShown(t, err.Error())
			requireShown(t, text)
		})
	}
}

// TestHostileHub: the same of a hub and its stores.
func TestHostileHub(t *testing.T) {
	for name, answer := range map[string]func(string) string{
		"reason":    func(string) string { return response(404, "") },
		"forbidden": func(string) string { return response(403, "") },
		"teapot":    func(string) string { return response(418, "") },
		"redirect": func(path string) string {
			if strings.Contains(path, "owned") {
				return response(404, "")
			}
			return "HTTP/1.1 302 x\r\nContent-Length: 0\r\nConnection: close\r\nLocation: /" + strings.Repeat("%1b%5b2J%e2%80%aeowned", 500) + "\r\n\r\n"
		},
		"names of files": func(path string) string {
			if strings.Contains(path, "/revision/") {
				return response(200, `{"sha":"0123456789abcdef"}`)
			}
			list := `[`
			for i := range 100 {
				list += fmt.Sprintf(`{"type":"file","size":5,"path":%s},`, quoted(t, strings.Repeat(escapes, 1000)+fmt.Sprint(i)+"/f.gguf"))
			}
			return response(200, strings.TrimSuffix(list, ",")+"]")
		},
		"next page": func(path string) string {
			if strings.Contains(path, "/revision/") {
				return response(200, `{"sha":"0123456789abcdef"}`)
			}
			return "HTTP/1.1 200 x\r\nConnection: close\r\nContent-Length: 2\r\nLink: <http://other/" + strings.Repeat("x\u202e", 5000) + ">; rel=\"next\"\r\n\r\n[]"
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("HF_ENDPOINT", hostileServer(t, answer))
			text, err := command(t, "pull", "hf:a/b", "--dir", t.TempDir())
			require.Error(t, err)
			requireShown(t, err.Error())
			requireShown(t, text)
		})
	}
}

// TestHostileModelName: the name in a GGUF file is shown on one line, cut.
func TestHostileModelName(t *testing.T) {
	path := tinyModel(t, func(c *synthetic.Config) {
		c.Name = escapes + "\nit fits: everything" + strings.Repeat("n", 1<<20)
	})
	out, err := command(t, "plan", "--model", path, "--host", "64GiB")
	require.NoError(t, err)
	requireShown(t, out)
	require.NotContains(t, out, "\nit fits: everything")
	f := gguftest.OpenFile(t, path)
	requireRequestable(t, (&server.Options{}).ModelName(node.File{}, decoder.Name(f)))

	ids := written(t, "1 2")
	_, log, err := logged(t, "", "logits", "--model", path, "--tokens", ids, "--out", ids+".out")
	require.NoError(t, err)
	for line := range strings.Lines(log) {
		requireShown(t, line)
	}
}

// requireRequestable fails unless a request may have the name that a server lists.
func requireRequestable(t *testing.T, name string) {
	t.Helper()
	require.NotEmpty(t, name)
	require.LessOrEqual(t, len(name), dialect.MaxModelName)
	requireShown(t, name)
}

// TestHostileFileName: a file without a name of the model gives its own.
func TestHostileFileName(t *testing.T) {
	for _, name := range []string{escapes, strings.Repeat(escapes, 9), strings.Repeat("n", 250), "a\xff\nb"} {
		requireRequestable(t, (&server.Options{}).ModelName(node.File{Path: "/m/" + name + ".gguf"}, ""))
	}
	plain := strings.Repeat("n", 200)
	require.Equal(t, plain, (&server.Options{}).ModelName(node.File{Path: "/m/" + plain + ".gguf"}, ""))
	_, err := command(t, "serve", "--model-name", "short", "--model-name", strings.Repeat("n", dialect.MaxModelName+1))
	require.ErrorContains(t, err, "--model-name has 257 bytes")
	require.Equal(t, 2, exitCode(err))
}

// TestHostileHosts: what doctor hears from other hosts over ssh.
func TestHostileHosts(t *testing.T) {
	facts := doctor.Facts{Version: doctor.FactsVersion, Host: "h", System: escapes, Arch: escapes, Release: escapes, Build: strings.Repeat(escapes, 100), Backend: escapes,
		Levels: []string{escapes}, Governor: escapes, Addresses: []string{escapes}, Firewalls: []string{escapes}, Errors: []string{strings.Repeat(escapes, 1000)},
		Interfaces: []doctor.Interface{{Name: escapes, Addresses: []string{escapes}}}, Ports: []doctor.Port{{Address: escapes, Use: escapes, Error: escapes}},
		Model: &doctor.Model{Path: escapes, Error: strings.Repeat(escapes, 1000)},
		RDMA:  doctor.RDMA{Library: escapes, Devices: []doctor.RDMADevice{{Name: escapes, State: escapes, Why: escapes}}, Notes: []string{escapes}},
		Mac:   &doctor.Mac{RDMA: escapes, Firewall: escapes},
		Vulkan: &doctor.Vulkan{Error: escapes, Cure: escapes, Drivers: escapes + "=" + escapes, Refused: escapes, Cards: []string{escapes},
			Devices: []doctor.VulkanDevice{{Name: escapes, Kind: escapes, Driver: escapes, Version: escapes, Missing: escapes, Heaps: []doctor.VulkanHeap{{Bytes: -1, Local: true}}}}}}
	sound := testenv.JSON(t, facts)
	facts.Errors = make([]string, 100000)
	many := testenv.JSON(t, facts)
	facts.Errors, facts.Vulkan.Devices = nil, make([]doctor.VulkanDevice, 1000)
	devices := testenv.JSON(t, facts)
	big := testenv.JSON(t, doctor.Facts{Version: doctor.FactsVersion, Host: strings.Repeat("h", 2<<20)})
	noise := strings.Repeat(escapes, 1<<19)
	for name, remote := range map[string]string{
		"facts": "cat %s", "errors of ssh": "cat %s >&2; exit 255", "noise": "cat %s",
		"many entries": "cat %s", "many devices": "cat %s", "long facts": "cat %s", "broken JSON": "printf '{\\033[2J'; cat %s",
	} {
		t.Run(name, func(t *testing.T) {
			text := map[string]string{"facts": string(sound), "many entries": string(many), "many devices": string(devices), "long facts": string(big)}[name]
			if text == "" {
				text = noise
			}
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, "text"), []byte(text), 0o600))
			ssh := filepath.Join(dir, "ssh")
			require.NoError(t, os.WriteFile(ssh, fmt.Appendf(nil, "#!/bin/sh\n"+remote+"\n", filepath.Join(dir, "text")), 0o700))
			for _, hosts := range [][]string{{"one"}, {"one", "two"}} {
				out, err := command(t, append([]string{"doctor", "--ssh", ssh}, hosts...)...)
				require.Error(t, err)
				require.Less(t, len(out), 40<<10)
				for line := range strings.Lines(out) {
					requireShown(t, line)
				}
				out, err = command(t, append([]string{"doctor", "--json", "--ssh", ssh}, hosts...)...)
				require.Error(t, err)
				requireSafe := &bytes.Buffer{}
				_, err = safetext.NewWriter(requireSafe).Write([]byte(out))
				require.NoError(t, err)
				require.Equal(t, out, requireSafe.String(), "nothing was left for the writer")
			}
		})
	}
}

// TestEndlessFiles: a file that is named by mistake is not read without end.
func TestEndlessFiles(t *testing.T) {
	for _, args := range [][]string{
		{"verify", "--recorded", "/dev/zero", "--url", "http://127.0.0.1:1"},
		{"rails", "plan", "/dev/zero", "/dev/zero"},
		{"logits", "--tokens", "/dev/zero", "--out", filepath.Join(t.TempDir(), "o")},
		{"chat", "--load", "/dev/zero", "--url", "http://127.0.0.1:1"},
		{"simulate", "--bench", "/dev/zero"},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := command(t, args...)
		runtime.ReadMemStats(&after)
		require.Error(t, err, args)
		require.Equal(t, 2, exitCode(err), "%v: %v", args, err)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<30), args)
		requireShown(t, err.Error())
	}
}

// TestHostileReports: what rails plan reads was said by other hosts.
func TestHostileReports(t *testing.T) {
	dir := t.TempDir()
	var args []string
	for i := range 2 {
		path := filepath.Join(dir, fmt.Sprint(i))
		text := fmt.Sprintf(`{"name":%s,"system":"linux","notes":[%s],"devices":[{"name":%s,"state":%s}]}`,
			quoted(t, escapes+"\nrank 0 forged: "+fmt.Sprint(i)), quoted(t, strings.Repeat(escapes, 1000)), quoted(t, escapes), quoted(t, escapes))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		args = append(args, path)
	}
	out, err := command(t, append([]string{"rails", "plan"}, args...)...)
	require.Error(t, err)
	requireShown(t, out)
	requireShown(t, err.Error())
	require.NotContains(t, out+err.Error(), "\nrank 0 forged")
}

// TestSink: what a command prints goes through the writer that escapes, its errors and its
// log too.
func TestSink(t *testing.T) {
	root := newRoot()
	for _, c := range append(root.Commands(), root) {
		require.IsType(t, &safetext.Writer{}, c.OutOrStdout(), c.Name())
		require.IsType(t, &safetext.Writer{}, c.ErrOrStderr(), c.Name())
	}
	var out bytes.Buffer
	printError(safetext.NewWriter(&out), fmt.Errorf("a%s", strings.Repeat(escapes, 10000)))
	require.Less(t, out.Len(), 5*maxErrorText)
	require.True(t, strings.HasPrefix(out.String(), `ringmaster: a\u001b[2J`), out.String()[:100])
	require.Contains(t, out.String(), "more bytes)")
}

// TestNothingPassesTheSink: no file of the commands writes to the standard streams itself.
func TestNothingPassesTheSink(t *testing.T) {
	require.NoError(t, filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || path == "root.go" /* makes the writers */ {
			return err
		}
		text, err := os.ReadFile(path)
		for _, bad := range []string{"os.Stdout", "os.Stderr", "fmt.Print", "println(", "log.Print"} {
			for line := range strings.Lines(string(text)) {
				at := strings.Index(line, bad)
				if at >= 0 && (at == 0 || !strings.ContainsRune("Ff.", rune(line[at-1]))) {
					t.Errorf("%s: %s; print to the command's OutOrStdout or ErrOrStderr", path, strings.TrimSpace(line))
				}
			}
		}
		return err
	}))
}
