package keys

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"math/rand/v2"
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
	k := Key{Name: "alice@box", Hash: Hash("secret"), Requests: Limit{60, time.Minute}, Tokens: Limit{1_000_000, 24 * time.Hour}, Expires: time.Date(2027, 2, 1, 0, 0, 0, 0, time.UTC), Weight: 3, Shared: true}
	require.Equal(t, "alice@box sha256:2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b requests=60/minute tokens=1000000/day expires=2027-02-01T00:00:00Z weight=3 cache=shared\n", k.Line())
	got, err := Parse([]byte("# keys\n\n" + k.Line() + "  bob\t" + zeros + " expires=2027-01-31\n"))
	require.NoError(t, err)
	require.Equal(t, []Key{k, {Name: "bob", Expires: k.Expires}}, got, "a date is over when it ends")

	for text, want := range map[string]string{
		"a sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\n": "hash of an empty key",
		"a " + zeros:                                 "has no line end",
		"a\n":                                        "line 1: no hash",
		"\na rm-secret\n":                            "line 2: expected sha256:",
		"a sha256:00\n":                              "64 hexadecimal digits",
		"a " + zeros + "0\n":                         "64 hexadecimal digits",
		"-a " + zeros + "\n":                         "the name of a key",
		"a " + zeros + " secret=1\n":                 "only requests=",
		"a " + zeros + " requests=0/minute\n":        "requests is \"0/minute\"; expected NUMBER/PERIOD",
		"a " + zeros + " requests=1/week\n":          "second, minute, hour or day",
		"a " + zeros + " tokens=999/day\n":           "from 1000",
		"a " + zeros + " tokens=9e99/day\n":          "expected NUMBER/PERIOD",
		"a " + zeros + " expires=soon\n":             "expected a date",
		"a " + zeros + " expires= expires=\n":        "expected a date",
		"a " + zeros + " weight=0\n":                 "weight is \"0\"; expected a whole number from 1 to 1000",
		"a " + zeros + " weight=1001\n":              "from 1 to 1000",
		"a " + zeros + " cache=private\n":            "cache is \"private\"; expected shared",
		"a " + zeros + "\na " + zeros + "\n":         "line 2: the name is already on line 1",
		"a " + zeros + "\nb " + zeros + "\n":         "line 2: the key is already on line 1",
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

// TestLimits: a key may use a period's amount at once, then evenly; tokens beyond what is
// left are owed.
func TestLimits(t *testing.T) {
	now := time.Unix(1000, 0)
	h := newHolder(Key{Requests: Limit{3, time.Minute}, Tokens: Limit{6000, time.Minute}}, &use{}, now)
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

	free := newHolder(Key{}, &use{}, now)
	free.Use(now, 1<<40)
	require.Zero(t, free.Request(now)+free.Wait(now))

	h = newHolder(Key{Expires: now}, &use{}, now)
	require.False(t, h.Expired(now.Add(-time.Nanosecond)))
	require.True(t, h.Expired(now))
}

// fileOfKeys is a file that a test changes, with a clock and the ring that follows it.
type fileOfKeys struct {
	t    *testing.T
	path string
	now  time.Time
	log  bytes.Buffer
	ring *Ring
}

func newFileOfKeys(t *testing.T, list ...Key) *fileOfKeys {
	f := &fileOfKeys{t: t, path: filepath.Join(t.TempDir(), "keys"), now: time.Unix(1000, 0)}
	f.write(list...)
	var err error
	f.ring, err = Open(Options{Given: []string{"flag", "", "flag"}, File: f.path, Now: func() time.Time { return f.now }, Log: slog.New(slog.NewTextHandler(&f.log, nil))})
	require.NoError(t, err)
	return f
}

// text writes the file; it is read again after that.
func (f *fileOfKeys) text(text string) {
	f.t.Helper()
	require.NoError(f.t, os.WriteFile(f.path, []byte(text), 0o600))
	f.now = f.now.Add(time.Second)
}

func (f *fileOfKeys) write(list ...Key) {
	f.t.Helper()
	f.text(lines(list...))
}

func lines(list ...Key) (text string) {
	for _, k := range list {
		text += k.Line()
	}
	return text
}

// TestRingFollowsItsFile: new keys, other limits and revocations are in force within
// a second.
func TestRingFollowsItsFile(t *testing.T) {
	one := Key{Name: "one", Hash: Hash("1"), Requests: Limit{1, time.Hour}}
	two := Key{Name: "two", Hash: Hash("2")}
	f := newFileOfKeys(t, one)
	r := f.ring
	require.True(t, r.Several())
	require.Nil(t, r.Find(""))
	require.Nil(t, r.Find("2"))
	require.Equal(t, "api-key-1", r.Find("flag").Name)
	f.write(one, two)
	require.Equal(t, "two", r.Find("2").Name)
	one.Name, one.Requests.N = "uno", 2
	f.write(one)
	require.Equal(t, "uno", r.Find("1").Name)
	require.Equal(t, Limit{2, time.Hour}, r.Find("1").Requests)
	require.Nil(t, r.Find("2"), "revoked")
	there, failed := r.FromFile()
	require.True(t, there)
	require.False(t, failed)
	require.NotContains(t, f.log.String(), "sha256")
}

// TestRevoked: a key is valid only while its hash is in the file, whatever else happens
// to the file, and a file with a mistake admits no key that was not valid before.
func TestRevoked(t *testing.T) {
	one, two, three := Key{Name: "one", Hash: Hash("1")}, Key{Name: "two", Hash: Hash("2")}, Key{Name: "three", Hash: Hash("3")}
	for name, c := range map[string]struct {
		text   string
		valid  string // the valid keys
		failed bool
	}{
		"the last line is removed":      {"", "", false},
		"white space":                   {" \n\n\t\r\n", "", false},
		"comments only":                 {"# no one\n", "", false},
		"each line is a comment":        {"# " + one.Line() + "#" + two.Line(), "", false},
		"no end of the last line":       {strings.TrimSpace(two.Line()), "2", true},
		"a comment without an end":      {"# no one", "", true},
		"a mistake in the line of one":  {"one sha256:00\n" + two.Line(), "2", true},
		"a mistake in a field":          {strings.TrimSpace(one.Line()) + " request=1/day\n" + three.Line(), "1", true},
		"the hash alone":                {two.Line() + "sha256:" + hex.EncodeToString(one.Hash[:]) + "\n", "2", true},
		"the key of another and no end": {strings.TrimSpace(three.Line()), "", true},
		"no text":                       {"\x00\xff\n", "", true},
		"a name twice":                  {two.Line() + two.Line(), "2", true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFileOfKeys(t, one, two)
			require.NotNil(t, f.ring.Find("1"))
			require.NotNil(t, f.ring.Find("2"))
			f.text(c.text)
			for range 2 { // it stays so
				valid := ""
				for _, key := range []string{"1", "2", "3", ""} {
					if f.ring.Find(key) != nil {
						valid += key
					}
				}
				require.Equal(t, c.valid, valid)
				_, failed := f.ring.FromFile()
				require.Equal(t, c.failed, failed)
				f.now = f.now.Add(time.Second)
			}
			require.NotNil(t, f.ring.Find("flag"), "keys of flags are another matter")
			require.NotContains(t, f.log.String(), hex.EncodeToString(one.Hash[:]))
			f.write(one, two)
			require.NotNil(t, f.ring.Find("1"), "a file that is right again is in force")
		})
	}
	t.Run("the file is gone", func(t *testing.T) {
		f := newFileOfKeys(t, one)
		require.NoError(t, os.Remove(f.path))
		f.now = f.now.Add(time.Second)
		require.Nil(t, f.ring.Find("1"))
		_, failed := f.ring.FromFile()
		require.True(t, failed)
		f.write(one)
		require.NotNil(t, f.ring.Find("1"))
	})
}

// TestDrawnFiles makes changes of all kinds to a file in a drawn order, with a clock that
// jumps. A key is never valid unless its hash is in the file, it is always valid if the
// file is correct, and a limit is never exceeded.
func TestDrawnFiles(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	const most = 4
	list := make([]Key, 6)
	for i := range list {
		list[i] = Key{Name: fmt.Sprint("k", i), Hash: Hash(fmt.Sprint(i)), Requests: Limit{most, 24 * time.Hour}}
	}
	f := newFileOfKeys(t, list...)
	admitted := make([]int, len(list))
	for step := range 1000 {
		var parts []string
		right := true
		for _, i := range r.Perm(len(list))[:r.IntN(len(list)+1)] {
			line := list[i].Line()
			switch r.IntN(8) {
			case 0:
				line = "# " + line
			case 1:
				line = line[:r.IntN(len(line))]
				right = false
			case 2:
				at := r.IntN(len(line) - 1)
				line = line[:at] + string(rune(33+r.IntN(90))) + line[at+1:]
				right = false
			case 3:
				line = "\n\t" + line
			}
			parts = append(parts, line)
		}
		text := strings.Join(parts, "")
		f.text(text)
		if gone := r.IntN(20) == 0; gone {
			require.NoError(t, os.Remove(f.path))
			text, right = "", false
		}
		f.now = f.now.Add([]time.Duration{0, time.Second, -time.Minute, -time.Hour}[r.IntN(4)])
		there := map[int]bool{}
		for line := range strings.Lines(text) {
			for i, k := range list {
				hash := hex.EncodeToString(k.Hash[:])
				there[i] = there[i] || !strings.HasPrefix(strings.TrimSpace(line), "#") && strings.Contains(strings.ToLower(line), hash)
			}
		}
		for i := range list {
			h := f.ring.Find(fmt.Sprint(i))
			if h != nil {
				require.True(t, there[i], "step %d: key %d is valid with %q", step, i, text)
				if h.Request(f.now) == 0 {
					admitted[i]++
				}
			} else {
				require.False(t, right && there[i], "step %d: key %d is not valid with %q", step, i, text)
			}
		}
	}
	for i, n := range admitted {
		require.Equal(t, most, n, "requests of key %d", i)
	}
}

// TestFirstFile: at start, a file without a key is a mistake unless a comment shows that
// it is on purpose.
func TestFirstFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	for _, text := range []string{"", "\n"} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		_, err := Open(Options{File: path})
		require.ErrorContains(t, err, path+": it has no key")
	}
	require.NoError(t, os.WriteFile(path, []byte("# no one\n"), 0o600))
	var log bytes.Buffer
	r, err := Open(Options{File: path, Log: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	require.Nil(t, r.Find("1"))
	require.Contains(t, log.String(), "so none is valid")
}

// TestUsedStaysUsed: whatever happens to the line of a key, its use comes back only with
// time.
func TestUsedStaysUsed(t *testing.T) {
	limited := func(requests, tokens Limit) Key {
		return Key{Name: "one", Hash: Hash("1"), Requests: requests, Tokens: tokens}
	}
	first := limited(Limit{4, 24 * time.Hour}, Limit{1000, 24 * time.Hour})
	for name, change := range map[string]func(f *fileOfKeys){
		"the same":          func(f *fileOfKeys) {},
		"a higher limit":    func(f *fileOfKeys) { f.write(limited(Limit{400, 24 * time.Hour}, Limit{50_000, 24 * time.Hour})) },
		"a lower limit":     func(f *fileOfKeys) { f.write(limited(Limit{1, 24 * time.Hour}, Limit{1000, 24 * time.Hour})) },
		"a longer period":   func(f *fileOfKeys) { f.write(limited(Limit{4, time.Hour}, Limit{1000, time.Hour})) },
		"no limit and back": func(f *fileOfKeys) { f.write(limited(Limit{}, Limit{})); f.ring.Find("1"); f.write(first) },
		"another name":      func(f *fileOfKeys) { k := first; k.Name = "uno"; f.write(k) },
		"removed and back":  func(f *fileOfKeys) { f.text("# no one\n"); f.ring.Find("1"); f.write(first) },
		"cut off and back":  func(f *fileOfKeys) { f.text(""); f.ring.Find("1"); f.write(first) },
		"a mistake, mended": func(f *fileOfKeys) { f.text("one\n"); f.ring.Find("1"); f.write(first) },
		"gone and back": func(f *fileOfKeys) {
			require.NoError(f.t, os.Remove(f.path))
			f.now = f.now.Add(time.Second)
			f.ring.Find("1")
			f.write(first)
		},
		"beside many others": func(f *fileOfKeys) {
			f.text("# no one\n")
			f.ring.Find("1")
			f.write(first, Key{Name: "two", Hash: Hash("2")})
		},
		"an answer before it": func(f *fileOfKeys) {
			old := f.ring.Find("1")
			f.write(limited(Limit{5, 24 * time.Hour}, Limit{2000, 24 * time.Hour}))
			f.ring.Find("1")
			old.Use(f.now, 5000)
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFileOfKeys(t, first)
			h := f.ring.Find("1")
			for range 4 {
				require.Zero(t, h.Request(f.now))
			}
			h.Use(f.now, 1000)
			require.NotZero(t, h.Request(f.now))
			change(f)
			h = f.ring.Find("1")
			require.NotZero(t, h.Request(f.now), "a request more than was allowed")
			require.NotZero(t, h.Wait(f.now), "a token more than was allowed")
			require.Zero(t, h.Request(f.now.Add(24*time.Hour)), "after a period")
		})
	}
	t.Run("half stays half", func(t *testing.T) {
		f := newFileOfKeys(t, first)
		h := f.ring.Find("1")
		require.Zero(t, h.Request(f.now))
		require.Zero(t, h.Request(f.now))
		f.write(limited(Limit{8, 24 * time.Hour}, Limit{}))
		h = f.ring.Find("1")
		admitted := 0
		for h.Request(f.now) == 0 {
			admitted++
		}
		require.Equal(t, 4, admitted)
	})
}

// TestForgets: the use of at most MostKeys removed keys is kept, and none once it has
// come back.
func TestForgets(t *testing.T) {
	f := &keyFile{path: "keys", log: slog.New(slog.DiscardHandler), uses: map[[sha256.Size]byte]*use{}}
	now := time.Unix(1000, 0)
	f.now = func() time.Time { return now }
	some := func(from, n int) string {
		var text strings.Builder
		for i := range n {
			k := Key{Name: fmt.Sprint("k", i), Hash: Hash(fmt.Sprint(from + i)), Requests: Limit{1, time.Hour}}
			text.WriteString(k.Line())
		}
		return text.String()
	}
	for round := range 5 {
		list, err := f.parse([][]byte{[]byte(some(round*4000, 4000))})
		require.NoError(t, err)
		for _, h := range list {
			require.Zero(t, h.Request(now))
		}
		require.LessOrEqual(t, len(f.uses), 4000+MostKeys)
	}
	now = now.Add(time.Hour)
	_, err := f.parse([][]byte{[]byte(some(0, 1))})
	require.NoError(t, err)
	require.Len(t, f.uses, 1)
}

// TestRenderings: a key has a budget of rendered bytes beside its requests.
func TestRenderings(t *testing.T) {
	now := time.Unix(1000, 0)
	h := newHolder(Key{Requests: Limit{2, time.Minute}}, &use{}, now)
	for range 2 * RenderBytes / (64 << 10) {
		require.Zero(t, h.Render(now, 64<<10))
	}
	require.NotZero(t, h.Render(now, 1))
	require.Zero(t, h.Request(now), "requests are counted apart")
	require.Zero(t, h.Render(now.Add(2*time.Second), 64<<10), "a sixteenth of a minute's half")
	free := newHolder(Key{Tokens: Limit{1000, time.Hour}}, &use{}, now)
	require.Zero(t, free.Render(now, 1<<30))
}

// TestUsedAtOnce is for the race detector.
func TestUsedAtOnce(t *testing.T) {
	now := time.Unix(1000, 0)
	h := newHolder(Key{Requests: Limit{50, time.Hour}, Tokens: Limit{1000, time.Hour}}, &use{}, now)
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
