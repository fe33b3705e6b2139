//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"ringmaster/internal/cli"
	"ringmaster/internal/testenv"
)

// pty opens a pseudo-terminal of 100 columns and 30 rows.
func pty(t *testing.T) (control, terminal *os.File) {
	control, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Skip("NOT CHECKED: no pseudo-terminals here: ", err)
	}
	t.Cleanup(func() { control.Close() })
	raw, err := control.SyscallConn()
	require.NoError(t, err)
	n := 0
	require.NoError(t, raw.Control(func(fd uintptr) {
		if err = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); err == nil {
			n, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
		}
	}))
	require.NoError(t, err)
	terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { terminal.Close() })
	require.NoError(t, unix.IoctlSetWinsize(int(terminal.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 30, Col: 100}))
	return control, terminal
}

// echoServer answers with the last question; one that contains "wait" it begins to
// answer and does not end.
func echoServer(t *testing.T) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			fmt.Fprint(w, `{"data":[{"id":"echo"}]}`)
			return
		}
		var body struct{ Messages []struct{ Content string } }
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			panic(err)
		}
		q := body.Messages[len(body.Messages)-1].Content
		text, err := json.Marshal("**echo** " + q)
		if err != nil {
			panic(err)
		}
		fmt.Fprintf(w, "data: {\"choices\":[{\"delta\":{\"content\":%s}}]}\n\n", text)
		if strings.Contains(q, "wait") {
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return
		}
		fmt.Fprint(w, "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n")
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// reader collects what a terminal shows.
type reader struct {
	t    *testing.T
	f    *os.File
	seen string
}

// until reads up to a text, and drops it with what is before it.
func (r *reader) until(text string) string {
	r.t.Helper()
	require.NoError(r.t, r.f.SetReadDeadline(time.Now().Add(20*time.Second)))
	buf := make([]byte, 4096)
	for !strings.Contains(r.seen, text) {
		n, err := r.f.Read(buf)
		require.NoError(r.t, err, "waiting for %q after %q", text, r.seen)
		r.seen += string(buf[:n])
	}
	before, after, _ := strings.Cut(r.seen, text)
	r.seen = after
	return before
}

// TestChatOnATerminal runs the program on a pseudo-terminal: editing, history, ^C in
// an answer, ^D, and SIGTERM at the prompt, after which the terminal is as it was.
func TestChatOnATerminal(t *testing.T) {
	program := testenv.Program(t)
	url, state := echoServer(t), t.TempDir()
	control, terminal := pty(t)
	start := func() *exec.Cmd {
		cmd := exec.Command(program, "chat", "--url", url)
		cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+state, "TERM=xterm")
		cmd.Stdin, cmd.Stdout, cmd.Stderr = terminal, terminal, terminal
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
		require.NoError(t, cmd.Start())
		return cmd
	}
	before, err := unix.IoctlGetTermios(int(terminal.Fd()), unix.TCGETS)
	require.NoError(t, err)
	screen := &reader{t: t, f: control}
	typing := func(keys string) {
		_, err := control.WriteString(keys)
		require.NoError(t, err)
	}

	cmd := start()
	screen.until("echo at " + url)
	screen.until("> ")
	typing("onx\x7fe\r")
	screen.until("\x1b[1mecho\x1b[0m one\r\n")
	screen.until("> ")
	typing("wait\r")
	screen.until("**echo** wait")
	typing("\x03")
	screen.until("stopped; /retry asks again")
	screen.until("> ")
	typing("\x1b[A\x1b[A\r") // the question before the last
	screen.until("\x1b[1mecho\x1b[0m one\r\n")
	screen.until("> ")
	typing("\x1b[200~two\nlines\x1b[201~\r")
	screen.until("two lines\r\n") // as Markdown: one paragraph
	screen.until("> ")
	typing("\x04")
	require.NoError(t, cmd.Wait())
	history := testenv.ReadFile(t, filepath.Join(state, "ringmaster", "history"))
	require.Equal(t, "one\nwait\none\ntwo\nlines\n", string(history))

	cmd = start()
	screen.until("> ")
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	screen.until("ringmaster: stopped by a signal")
	require.Error(t, cmd.Wait())
	require.Equal(t, 1, cmd.ProcessState.ExitCode())
	after, err := unix.IoctlGetTermios(int(terminal.Fd()), unix.TCGETS)
	require.NoError(t, err)
	require.Equal(t, before, after)
}

// TestChatOnAPipe: one question, from the arguments and the pipe; plain text; what
// cannot work has exit code 2.
func TestChatOnAPipe(t *testing.T) {
	url, dir := echoServer(t), t.TempDir()
	ask := func(piped string, args ...string) (string, error) {
		in, w, err := os.Pipe()
		require.NoError(t, err)
		out, err := os.Create(filepath.Join(dir, "out"))
		require.NoError(t, err)
		defer func() { in.Close(); out.Close() }()
		go func() {
			io.Copy(w, strings.NewReader(piped))
			w.Close()
		}()
		cmd := newChat(in, out)
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cli.AllUsage(cmd)
		cmd.SetArgs(append([]string{"--url", url}, args...))
		err = cmd.ExecuteContext(t.Context())
		text := testenv.ReadFile(t, out.Name())
		return string(bytes.TrimSpace(text)), err
	}
	saved := filepath.Join(dir, "talk.json")
	out, err := ask(" from the pipe\n", "Question:", "--save", saved, "--system", "Be good.")
	require.NoError(t, err)
	require.Equal(t, "**echo** Question:\n\n from the pipe", out)
	out, err = ask("again", "--load", saved)
	require.NoError(t, err)
	require.Equal(t, "**echo** again", out)
	for want, args := range map[string][]string{
		"there is no question":  {},
		"expected an address":   {"x", "--url", "nowhere"},
		"--set is":              {"x", "--set", "novalue"},
		"accepts at most 1 arg": {"x", "y"},
		"unknown flag":          {"--bogus"},
		"is not a conversation": {"x", "--load", "chat_test.go"},
	} {
		_, err := ask("", args...)
		requireRefused(t, err, want, want)
	}
}
