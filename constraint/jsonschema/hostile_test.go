package jsonschema

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	c "ringmaster/constraint"
	"ringmaster/constraint/jsonschema/schematest"
	"ringmaster/internal/testenv"
)

// cpuTime returns the processor time of the process so far.
func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// bounded runs do, and requires that it takes at most 2 s of a processor and 256 MiB plus
// 128 bytes for each byte of a schema.
func bounded(t *testing.T, what string, size int, do func()) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began := cpuTime()
	do()
	took := cpuTime() - began
	runtime.ReadMemStats(&after)
	require.Less(t, took, 2*time.Second, what)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(256<<20+128*size), what)
}

// work compiles a schema in every way that a request may need, and begins an answer.
func work(t *testing.T, schema []byte, o Options) {
	b := c.NewBudget(t.Context(), c.DefaultWork)
	o.Budget = b
	e, err := Compile(schema, o)
	if err != nil {
		require.Less(t, len(err.Error()), 2000)
		return
	}
	g, err := c.Compile(e, vocabulary, b)
	if err != nil {
		return
	}
	m := g.Matcher(byteTokens{}, c.NewWork())
	var mask [5]uint64
	for range 30 {
		clear(mask[:])
		if m.Mask(context.Background(), mask[:]) != nil {
			return
		}
		id := int32(256)
		for i := range id {
			if mask[i/64]>>(i%64)&1 != 0 {
				id = i
				break
			}
		}
		if m.Accept(id) != nil {
			return
		}
	}
}

// TestHostileSchemasAreBounded attacks what docs/security.md promises about schemas, with
// schemas of every size up to 1 MiB that are made by seed from all keywords.
func TestHostileSchemasAreBounded(t *testing.T) {
	seeds, largest := 60, 32<<10
	if testenv.At(testenv.Full) {
		seeds, largest = 200, 1<<20
	}
	for seed := range seeds {
		schema := schematest.Hostile(uint64(seed), largest)
		if len(schema) > 1<<20 {
			continue
		}
		require.True(t, json.Valid([]byte(schema)), "seed %d: %.300s", seed, schema)
		what := fmt.Sprintf("seed %d, %d bytes: %.200s", seed, len(schema), schema)
		bounded(t, what, len(schema), func() { work(t, []byte(schema), Options{}) })
		bounded(t, what, len(schema), func() { work(t, []byte(schema), Options{Closed: true, Lenient: true}) })
		bounded(t, what, len(schema), func() {
			b := c.NewBudget(t.Context(), c.DefaultWork)
			_, _, _ = Parameters([]byte(schema), c.Free("x"), Options{Lenient: true, Closed: true, Budget: b})
		})
		bounded(t, what, len(schema), func() {
			m := MembersOf([]byte(schema))
			for i := range 1000 {
				found := m.Find(fmt.Sprintf("p%d", i))
				found.Takes([]byte("[1]"))
			}
		})
	}
}

// TestCostlySchemas has the schemas that once took minutes or gigabytes, with their
// results.
func TestCostlySchemas(t *testing.T) {
	list := func(n int, format string) string {
		var b strings.Builder
		for i := range n {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(strings.ReplaceAll(format, "%d", fmt.Sprint(i)))
		}
		return b.String()
	}
	for _, tt := range []struct {
		name, schema, refused string
	}{
		{"references to an enum of numbers with exponents", `{"$defs":{"e":{"enum":[` + list(2000, "1e%d") + `]}},"allOf":[` + list(201, `{"$ref":"#/$defs/e"}`) + `]}`, ""},
		{"different enums of numbers with exponents", `{"allOf":[` + list(100, `{"enum":[1e9999,1e%d,`+list(500, "1e%d")+`]}`) + `]}`, ""},
		{"oneOf of 2,000 constants", `{"oneOf":[` + list(2000, `{"const":%d}`) + `]}`, ""},
		{"oneOf of 16,000 constants", `{"oneOf":[` + list(16000, `{"const":%d}`) + `]}`, "at most 2048"},
		{"oneOf of 5,000 objects", `{"oneOf":[` + list(5000, `{"type":"object","required":["k"],"properties":{"k":{"const":%d}}}`) + `]}`, "more than 256 alternatives"},
		{"patterns and properties", `{"additionalProperties":false,"properties":{` + list(200, `"p%d":{}`) + `},"patternProperties":{` + list(16, `"(a|b){1,500}%d$":{}`) + `}}`, "cannot be enforced together"},
		{"a long name", `{"properties":{"` + strings.Repeat("a", 300_000) + `":{}}}`, "300000 bytes"},
		{"a long name that is required", `{"required":["` + strings.Repeat("a", 300_000) + `"]}`, "300000 bytes"},
		{"long names", `{"properties":{` + list(250, `"%d`+strings.Repeat("a", 4000)+`":{}`) + `}}`, "too much work"},
		{"large bounds", `{"allOf":[` + list(40, `{"maximum":1e200%d}`) + `]}`, ""},
		{"large bounds of properties", `{"properties":{` + list(40, `"p%d":{"maximum":1e2000}`) + `}}`, ""},
		{"many digits", `{"minimum":` + strings.Repeat("9", 500_000) + `}`, "at most 100 digits"},
		{"ranges that ignore case", `{"pattern":"` + strings.Repeat(`(?i)[B-\\x{1e900}]`, 200) + `"}`, "too much work"},
		{"many patterns", `{"additionalProperties":false,"patternProperties":{` + list(16, `"%d`+strings.Repeat(`\\pL|\\pN|\\p{Greek}|`, 150)+`a":{}`) + `},"properties":{` + list(200, `"p%d":{}`) + `}}`, "too much work"},
		{"multiples", `{"properties":{` + list(100, `"p%d":{"type":"integer","multipleOf":9%d}`) + `}}`, "too much work"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			require.True(t, json.Valid([]byte(tt.schema)))
			var err error
			bounded(t, tt.name, len(tt.schema), func() { // of a tool without strict
				b := c.NewBudget(t.Context(), c.DefaultWork)
				if e, err := Compile([]byte(tt.schema), Options{Budget: b, Lenient: true, Closed: true}); err == nil {
					_, _ = c.Compile(e, vocabulary, b)
				}
			})
			bounded(t, tt.name, len(tt.schema), func() {
				b := c.NewBudget(t.Context(), c.DefaultWork)
				var e *c.Expr
				if e, err = Compile([]byte(tt.schema), Options{Budget: b}); err == nil {
					_, err = c.Compile(e, vocabulary, b)
				}
			})
			if tt.refused != "" {
				require.ErrorContains(t, err, tt.refused)
			} else {
				require.NoError(t, err)
			}
		})
	}
}

// looks is a context that ends after a number of checks.
type looks struct {
	context.Context
	left int
}

func (l *looks) Err() error {
	if l.left--; l.left < 0 {
		return context.Canceled
	}
	return nil
}

// A compilation ends when its request does, at any point.
func TestCompilingEndsWithItsRequest(t *testing.T) {
	for name, schema := range map[string]string{
		"reading":    `{"default":[` + strings.Repeat("1,", 50_000) + `1]}`,
		"merging":    `{"allOf":[` + strings.Repeat(`{"type":"object"},`, 20_000) + `true]}`,
		"multiples":  `{"type":"integer","multipleOf":1023}`,
		"names":      `{"properties":{` + strings.TrimSuffix(strings.Repeat(`"`+strings.Repeat("a", 1000)+`":{},`, 1), ",") + `}}`,
		"the format": `{"format":"ipv6"}`,
	} {
		spent := func(ctx context.Context) error {
			b := c.NewBudget(ctx, c.DefaultWork)
			e, err := Compile([]byte(schema), Options{Budget: b})
			if err == nil {
				_, err = c.Compile(e, vocabulary, b)
			}
			return err
		}
		all := &looks{t.Context(), 1 << 30}
		require.NoError(t, spent(all), name)
		n := 1<<30 - all.left
		require.Positive(t, n, "%s takes more than the budget looks away", name)
		for _, left := range []int{0, n / 2, n - 1} {
			some := &looks{t.Context(), left}
			require.ErrorIs(t, spent(some), context.Canceled, "%s: %d of %d", name, left, n)
			require.Equal(t, -1, some.left, "%s: nothing more is done", name)
		}
	}
}

// Numbers are compared exactly, however they are written.
func TestDecimals(t *testing.T) {
	order := []string{"-1e400", "-10.5", "-1e1", "-0.1", "-1e-400", "0", "1e-400", "0.05", "0.5", "1", "1.000001", "9", "10", "99", "1e2", "1e400", "1e401"}
	for i, a := range order {
		for j, b := range order {
			x, ok := parseDecimal(a)
			require.True(t, ok)
			y, ok := parseDecimal(b)
			require.True(t, ok)
			require.Equal(t, min(1, max(-1, i-j)), x.cmp(y), "%s and %s", a, b)
			require.Equal(t, i == j, x.key() == y.key(), "%s and %s", a, b)
		}
	}
	for _, same := range [][]string{{"1", "1.0", "10e-1", "0.1e1", "1E0", "100e-2"}, {"0", "-0", "0.0", "0e99"}, {"1200", "1.2e3", "0.0012e+6"}} {
		for _, s := range same {
			a, _ := parseDecimal(same[0])
			b, ok := parseDecimal(s)
			require.True(t, ok)
			require.Equal(t, a, b, s)
			require.True(t, b.isInt(), s)
			require.Equal(t, same[0], b.text())
		}
	}
	_, ok := parseDecimal("1e99999999999")
	require.False(t, ok)
	// A bound that no answer can reach does not matter, and a schema with a required
	// value that no answer can have is refused.
	g := grammar(t, `{"type":"integer","minimum":-1e300,"maximum":1e300}`, Options{})
	require.True(t, matches(g, "-5"))
	require.True(t, matches(g, strings.Repeat("9", 100)))
	for _, schema := range []string{`{"minimum":1e300}`, `{"maximum":-1e300}`, `{"minimum":1e-50}`} {
		_, err := Compile([]byte(schema), Options{})
		require.ErrorContains(t, err, "digits", schema)
	}
	require.True(t, matches(grammar(t, `{"enum":[1e2,1e9999]}`, Options{}), "100"))
	require.True(t, matches(grammar(t, `{"enum":[1e9999],"minimum":5}`, Options{}), "1e9999"))
}

// Every format in the table is enforced, and also decides about constants.
func TestFormatsAreEnforced(t *testing.T) {
	for format, text := range map[string]string{"date": "2024-02-29", "time": "10:00:00Z", "date-time": "2024-02-29T10:00:00Z", "duration": "P1D", "uuid": "00000000-0000-0000-0000-000000000000",
		"ipv4": "10.0.0.1", "ipv6": "::1", "hostname": "a.b", "email": "a@b.c", "uri": "https://a.b/c?d=%20"} {
		require.Contains(t, formats, format)
		require.True(t, matches(grammar(t, `{"type":"string","format":"`+format+`"}`, Options{}), `"`+text+`"`), format)
		g := grammar(t, `{"format":"`+format+`","enum":["`+text+`"," "]}`, Options{})
		require.True(t, matches(g, `"`+text+`"`), format)
		require.False(t, matches(g, `" "`), format)
	}
	require.Len(t, formats, 10)
}
