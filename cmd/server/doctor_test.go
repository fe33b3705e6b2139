package main

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/doctor"
	"ringmaster/internal/testenv"
)

// TestDoctorCommand examines this host, a sound and a truncated model, and a port that
// is taken; over ssh, which is replaced by a shell, it finds two equal hosts.
func TestDoctorCommand(t *testing.T) {
	path := tinyModel(t, nil)
	examine := func(args ...string) (r doctor.Report, err error) {
		out, err := command(t, append([]string{"doctor", "--json", "--quick"}, args...)...)
		require.NoError(t, json.Unmarshal([]byte(out), &r), out)
		return r, err
	}
	severity := func(r doctor.Report, check string) (s doctor.Severity) {
		for _, f := range r.Findings {
			if f.Check == check {
				s = max(s, f.Severity)
			}
		}
		return s
	}
	r, _ := examine("--model", path, "--check-weights") // this host may have warnings
	require.True(t, r.Hosts[0].Model.Checked)
	require.Empty(t, r.Hosts[0].Model.Error)
	require.NotEmpty(t, r.Hosts[0].Model.Fingerprint)
	require.NotEmpty(t, r.Hosts[0].Levels)
	require.Positive(t, r.Hosts[0].Files.Soft)
	require.Less(t, severity(r, "model"), doctor.Warning)

	data := testenv.ReadFile(t, path)
	short := testenv.WriteFile(t, path+"-short.gguf", data[:len(data)/2])
	r, err := examine("--model", short)
	require.Equal(t, 4, exitCode(err))
	require.Equal(t, doctor.Error, severity(r, "model"))

	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	r, err = examine("--listen", l.Addr().String())
	require.Equal(t, 4, exitCode(err))
	require.Equal(t, doctor.Error, severity(r, "ports"))

	for want, args := range map[string][]string{
		"given twice":                  {"a", "a"},
		"expected a name":              {"--", "-oProxyCommand=x"},
		"--check-weights needs":        {"--check-weights"},
		"--listen is \"9000\"; expect": {"--listen", "9000"},
		"hosts need":                   {"--ssh", " ", "a"},
		"unknown flag":                 {"--bogus"},
	} {
		_, err := command(t, append([]string{"doctor"}, args...)...)
		requireRefused(t, err, want, want)
	}
}

// TestDoctorOverSSH runs doctor on other hosts through a command in ssh's place.
func TestDoctorOverSSH(t *testing.T) {
	dir := t.TempDir()
	facts, err := command(t, "doctor", "--facts", "--quick")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "facts.json"), []byte(facts), 0o644))
	// The arguments are the host and the command; the host "down" does not answer.
	ssh := filepath.Join(dir, "ssh")
	require.NoError(t, os.WriteFile(ssh, []byte("#!/bin/sh\n[ \"$1\" = down ] && { echo no route >&2; exit 255; }\necho \"$2\" >>"+dir+"/asked\ncat "+dir+"/facts.json\n"), 0o755))
	out, err := command(t, "doctor", "--ssh", ssh, "--program", "/opt/rm", "--quick", "--model", "/m.gguf", "a", "b", "down")
	require.Equal(t, 4, exitCode(err), out)
	require.Contains(t, out, "all hosts have the build")
	require.Contains(t, out, "error    ssh        exit status 255: no route")
	asked := testenv.ReadFile(t, filepath.Join(dir, "asked"))
	require.Equal(t, "'/opt/rm' doctor --facts '--model=/m.gguf' '--quick'\n'/opt/rm' doctor --facts '--model=/m.gguf' '--quick'\n", string(asked))
}
