//go:build cgo && linux

package helper

import (
	"encoding/binary"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/distributed/rdma/verbs"
	"ringmaster/tests/fakeverbs"
)

// The server does not trust a helper.

// faultVariable makes this binary, started as a helper, a faulty one.
const faultVariable = "RINGMASTER_FAULTY_HELPER"

// faulty is a helper that answers the first request wrongly, in the way that the path of the
// library names.
func faulty() {
	signal.Ignore(syscall.SIGTERM)
	c, err := net.FileConn(os.NewFile(3, "helper"))
	if err != nil {
		panic(err)
	}
	u := c.(*net.UnixConn)
	m, err := receive(u)
	if err != nil {
		panic(err)
	}
	switch m.Names[0] {
	case "escapes":
		_, _ = os.Stderr.WriteString(escapes)
		os.Exit(1)
	case "no names":
		err = send(u, &message{ID: m.ID, Version: version})
	case "two names":
		err = send(u, &message{ID: m.ID, Version: version, Names: []string{"a", "b"}})
	case "another request":
		err = send(u, &message{ID: m.ID + 1, Version: version, Names: []string{"a"}})
	case "half a reply":
		_, err = u.Write(append(binary.LittleEndian.AppendUint32(nil, 100), "{"...))
	case "a long reply":
		_, err = u.Write(binary.LittleEndian.AppendUint32(nil, longest+1))
	case "no JSON":
		_, err = u.Write(append(binary.LittleEndian.AppendUint32(nil, 3), "}{]"...))
	case "a long text":
		err = send(u, &message{ID: m.ID, Version: version, Text: strings.Repeat("x", 1<<19)})
	}
	if err != nil {
		panic(err)
	}
	select {} // whatever is said or asked
}

// TestFaultyHelper: no answer of a helper to the first request ends the server or blocks it,
// and no such helper stays alive.
func TestFaultyHelper(t *testing.T) {
	const noAnswer = "did not report within"
	t.Setenv(faultVariable, "1")
	var all sync.WaitGroup
	for fault, want := range map[string]string{
		"no names":        "reports 0 loaded libraries",
		"two names":       "reports 2 loaded libraries",
		"another request": noAnswer,
		"silence":         noAnswer,
		"half a reply":    noAnswer,
		"a long reply":    "closed its connection",
		"no JSON":         "closed its connection",
		"a long text":     "in the helper process: xxx",
	} {
		all.Go(func() {
			limit := 20 * time.Second // on a busy host
			if want == noAnswer {
				limit = 100 * time.Millisecond
			}
			_, err := openWithin(fault, 0, limit)
			assert.ErrorContains(t, err, want, fault)
			assert.ErrorIs(t, err, distributed.ErrUnavailable, fault)
			assert.Less(t, len(err.Error()), 8<<10, fault)
		})
	}
	all.Wait()
	lists, err := filepath.Glob("/proc/self/task/*/children")
	require.NoError(t, err)
	require.NotEmpty(t, lists)
	for _, list := range lists {
		children, err := os.ReadFile(list)
		if err == nil { // else the thread has ended
			require.Empty(t, strings.TrimSpace(string(children)))
		}
	}
}

// escapes is a text that a library could print.
const escapes = "device \x1b[2J\x1b]0;x\x07\u202e\x9b is gone\n"

// TestStderrOfHelper: the output of a library in a helper cannot control a terminal.
func TestStderrOfHelper(t *testing.T) {
	t.Setenv(faultVariable, "1")
	file, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	require.NoError(t, err)
	defer file.Close()
	func() {
		defer func(f *os.File) { os.Stderr = f }(os.Stderr)
		os.Stderr = file
		_, err = openWithin("escapes", 0, 20*time.Second)
	}()
	require.ErrorIs(t, err, distributed.ErrUnavailable)
	require.Eventually(t, func() bool {
		printed, err := os.ReadFile(file.Name())
		return err == nil && string(printed) == `device \u001b[2J\u001b]0;x\u0007\u202e\x9b is gone`+"\n"
	}, 20*time.Second, 10*time.Millisecond)
}

// TestSharedMemoryKeepsItsLength: a helper has the descriptor of shared memory, but must not
// be able to shorten the file, because the server's next access would end the server.
func TestSharedMemoryKeepsItsLength(t *testing.T) {
	f, m, err := (&process{}).share(1)
	require.NoError(t, err)
	defer f.Close()
	for _, n := range []int64{0, int64(len(m.mem)) - 1, int64(len(m.mem)) * 2} {
		require.ErrorIs(t, syscall.Ftruncate(int(f.Fd()), n), syscall.EPERM)
	}
	m.mem[len(m.mem)-1] = 1
	require.NoError(t, m.unmap())
}

// TestTroubleOfAnyKind: any trouble that a helper writes breaks the queue; no value looks
// like an empty queue.
func TestTroubleOfAnyKind(t *testing.T) {
	t.Setenv("FAKEVERBS_DIR", t.TempDir())
	f := fakeverbs.New(t, "device a\n")
	p := &provider{path: f.Path, limit: loadLimit}
	for _, trouble := range []uint64{
		1,                // a number of a queue pair, no kind, no errno
		2 << 56, 3 << 56, // posts without an errno
		2<<56 | 22<<32, // a post with one
		1 << 56,        // a poll that returned 0
		1<<56 | 5,
		0xff << 56, ^uint64(0),
	} {
		calls, errno := p.Open("a")
		require.Zero(t, errno)
		cq, errno := calls.CreateCQ(8)
		require.Zero(t, errno)
		out := make([]verbs.WC, 4)
		require.Zero(t, calls.Poll(cq, out))
		require.NoError(t, calls.Fault(cq))
		d := calls.(*device)
		d.mu.Lock()
		ring := d.queues[cq].ring.mem
		d.mu.Unlock()
		binary.NativeEndian.PutUint64(ring[64:], trouble)
		got := calls.Poll(cq, out)
		require.True(t, got < 0 || got > len(out), "%x: %d", trouble, got)
		require.Error(t, calls.Fault(cq), "%x", trouble)
		require.Zero(t, calls.DestroyCQ(cq))
		require.Zero(t, calls.Close())
	}
	p.Close(false)
}

// TestLibraryThatHangs: a library with a constructor that never returns neither blocks the
// server nor keeps its helper alive.
func TestLibraryThatHangs(t *testing.T) {
	dir := t.TempDir()
	source, lib := filepath.Join(dir, "hang.c"), filepath.Join(dir, "hang.so")
	require.NoError(t, os.WriteFile(source, []byte("#include <unistd.h>\n__attribute__((constructor)) static void start(void) { for (;;) pause(); }\n"), 0o600))
	msg, err := exec.Command("cc", "-shared", "-fPIC", "-o", lib, source).CombinedOutput()
	require.NoError(t, err, "%s", msg)
	_, err = openWithin(lib, 0, 300*time.Millisecond)
	require.ErrorIs(t, err, distributed.ErrTimeout)
	require.ErrorContains(t, err, lib)
}
