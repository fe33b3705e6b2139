package keys

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const zeros = "sha256:0000000000000000000000000000000000000000000000000000000000000000"

func TestParse(t *testing.T) {
	k := Key{Name: "alice@box", Hash: Hash("secret"), Requests: Limit{60, time.Minute}, Tokens: Limit{1_000_000, 24 * time.Hour}, Expires: time.Date(2027, 2, 1, 0, 0, 0, 0, time.UTC)}
	require.Equal(t, "alice@box sha256:2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b requests=60/minute tokens=1000000/day expires=2027-02-01T00:00:00Z\n", k.Line())
	got, err := Parse([]byte("# keys\n\n" + k.Line() + "  bob\t" + zeros + " expires=2027-01-31\n"))
	require.NoError(t, err)
	require.Equal(t, []Key{k, {Name: "bob", Expires: k.Expires}}, got, "a date is over when it ends")

	for text, want := range map[string]string{
		"a sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\n": "hash of an empty key",
		"a " + zeros:                                 "has no end",
		"a\n":                                        "line 1: no hash",
		"\na rm-secret\n":                            "line 2: after the name comes sha256:",
		"a sha256:00\n":                              "64 hexadecimal digits",
		"a " + zeros + "0\n":                         "64 hexadecimal digits",
		"-a " + zeros + "\n":                         "the name of a key",
		"a " + zeros + " secret=1\n":                 "other than requests=",
		"a " + zeros + " requests=0/minute\n":        "requests is \"0/minute\"; expected NUMBER/PERIOD",
		"a " + zeros + " requests=1/week\n":          "second, minute, hour or day",
		"a " + zeros + " tokens=999/day\n":           "from 1000",
		"a " + zeros + " tokens=9e99/day\n":          "expected NUMBER/PERIOD",
		"a " + zeros + " expires=soon\n":             "expected a date",
		"a " + zeros + " expires= expires=\n":        "expected a date",
		"a " + zeros + "\na " + zeros + "\n":         "line 2: the name of line 1 again",
		"a " + zeros + "\nb " + zeros + "\n":         "line 2: the key of line 1 again",
		strings.Repeat("x", 65) + " " + zeros + "\n": "1 to 64 letters",
	} {
		_, err := Parse([]byte(text))
		require.ErrorContains(t, err, want, "%q", text)
		require.NotContains(t, err.Error(), "secret", "an error must not show a key")
	}
}

func TestNewKeysDiffer(t *testing.T) {
	a, b := New(), New()
	require.NotEqual(t, a, b)
	require.Regexp(t, `^rm-[A-Za-z0-9_-]{43}$`, a)
}

// TestLimits: a period's worth at once, then evenly; tokens beyond what is left are
// owed.
func TestLimits(t *testing.T) {
	now := time.Unix(1000, 0)
	h := newHolder(Key{Requests: Limit{3, time.Minute}, Tokens: Limit{6000, time.Minute}}, nil)
	for range 3 {
		require.Zero(t, h.Request(now))
	}
	for range 5 { // refusals are not counted
		require.Equal(t, 20*time.Second, h.Request(now))
	}
	now = now.Add(20 * time.Second)
	require.Zero(t, h.Request(now))
	require.Equal(t, 20*time.Second, h.Request(now))

	require.Zero(t, h.Wait(now))
	h.Use(now, 5999)
	require.Zero(t, h.Wait(now), "a token is left")
	h.Use(now, 12001) // 12000 owed, 100 come back in a second
	require.InDelta(t, (120*time.Second + 10*time.Millisecond).Seconds(), h.Wait(now).Seconds(), 1e-6)
	require.NotZero(t, h.Wait(now.Add(120*time.Second)))
	require.Zero(t, h.Wait(now.Add(121*time.Second)))

	free := newHolder(Key{}, nil)
	free.Use(now, 1<<40)
	require.Zero(t, free.Request(now)+free.Wait(now))

	h = newHolder(Key{Expires: now}, nil)
	require.False(t, h.Expired(now.Add(-time.Nanosecond)))
	require.True(t, h.Expired(now))
}

// TestRingFollowsItsFile: new keys, other limits and revocations are in force within
// a second; what was used stays used; an unusable change changes nothing.
func TestRingFollowsItsFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	now := time.Unix(1000, 0)
	var log bytes.Buffer
	write := func(list ...Key) {
		text := ""
		for _, k := range list {
			text += k.Line()
		}
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		now = now.Add(time.Second)
	}
	one := Key{Name: "one", Hash: Hash("1"), Requests: Limit{1, time.Hour}}
	two := Key{Name: "two", Hash: Hash("2")}
	write(one)
	r, err := Open(Options{Given: []string{"flag", "", "flag"}, File: path, Now: func() time.Time { return now }, Log: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	require.True(t, r.Several())
	require.Nil(t, r.Find(""))
	require.Nil(t, r.Find("2"))
	require.Equal(t, "api-key-1", r.Find("flag").Name)
	require.Zero(t, r.Find("1").Request(now))

	write(one, two)
	require.Equal(t, "two", r.Find("2").Name)
	require.NotZero(t, r.Find("1").Request(now), "a change of the file gives nothing back")
	one.Name, one.Requests.N = "uno", 2
	write(one)
	require.Equal(t, "uno", r.Find("1").Name)
	require.Zero(t, r.Find("1").Request(now), "another limit begins anew")
	require.Nil(t, r.Find("2"), "revoked")

	require.NoError(t, os.WriteFile(path, nil, 0o600))
	now = now.Add(time.Second)
	require.Equal(t, "uno", r.Find("1").Name, "an emptied file is no way to revoke keys")
	there, failed := r.FromFile()
	require.True(t, there && failed)
	require.Contains(t, log.String(), "no key in it")
	require.NotContains(t, log.String(), "sha256")

	_, err = Open(Options{File: path})
	require.ErrorContains(t, err, path+": no key in it")
}

// TestUsedAtOnce is for the race detector.
func TestUsedAtOnce(t *testing.T) {
	h := newHolder(Key{Requests: Limit{50, time.Hour}, Tokens: Limit{1000, time.Hour}}, nil)
	now := time.Unix(1000, 0)
	var mu sync.Mutex
	var group sync.WaitGroup
	admitted := 0
	for range 100 {
		group.Go(func() {
			if h.Request(now) == 0 {
				mu.Lock()
				admitted++
				mu.Unlock()
			}
			h.Use(now, 10)
			h.Wait(now)
		})
	}
	group.Wait()
	require.Equal(t, 50, admitted)
	require.InDelta(t, 3.6, h.Wait(now).Seconds(), 1e-6, "all 1000 are used")
}

func FuzzParse(f *testing.F) {
	f.Add("a " + zeros + " requests=60/minute tokens=1000/day expires=2027-01-31\n")
	f.Fuzz(func(t *testing.T, text string) {
		list, err := Parse([]byte(text))
		if err != nil {
			return
		}
		again := ""
		for _, k := range list {
			again += k.Line()
		}
		got, err := Parse([]byte(again))
		require.NoError(t, err)
		require.Equal(t, len(list), len(got))
		for i := range list {
			require.True(t, list[i].Expires.Truncate(time.Second).Equal(got[i].Expires))
			list[i].Expires, got[i].Expires = time.Time{}, time.Time{}
			require.Equal(t, list[i], got[i])
		}
	})
}
