package jsonschema

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	c "ringmaster/constraint"
	"ringmaster/internal/testenv"
)

// hostile writes schemas that repeat what costs most, over all keywords, within each other
// and by references.
type hostile struct {
	r    *rand.Rand
	left int // bytes
}

// some is a number of times that something of a size may be repeated.
func (h *hostile) some(size int) int {
	most := max(1, h.left/(size+1))
	if h.r.IntN(3) == 0 {
		most = min(most, 1+h.r.IntN(20))
	}
	n := 1 + h.r.IntN(most)
	h.left -= n * (size + 1)
	return n
}

func (h *hostile) text(n int) string {
	letters := []string{"a", "b", "é", "漢", `\"`, `\\`, `\u0000`, "-", "0", "~1", "/"}
	if h.r.IntN(3) == 0 {
		letters = letters[:1]
	}
	var b strings.Builder
	for b.Len() < n {
		b.WriteString(letters[h.r.IntN(len(letters))])
	}
	return `"` + b.String() + `"`
}

func (h *hostile) number() string {
	switch h.r.IntN(7) {
	case 0:
		return fmt.Sprintf("1e%d", h.r.IntN(20000))
	case 1:
		return fmt.Sprintf("-%d.5e-%d", 1+h.r.IntN(9), h.r.IntN(20000))
	case 2:
		return "9" + strings.Repeat("8", min(h.some(1), 200_000))
	case 3:
		return "0." + strings.Repeat("0", min(h.some(1), 200)) + "1"
	case 4:
		return "1e999999999999"
	}
	return fmt.Sprint(h.r.IntN(3000) - 1000)
}

// list is n items that a function writes, with commas.
func (h *hostile) list(n int, item func(i int) string) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		s := item(i)
		b.WriteString(s)
	}
	return b.String()
}

func (h *hostile) value(depth int) string {
	switch h.r.IntN(6) {
	case 0:
		return h.text(h.some(1))
	case 1:
		if depth < 20 {
			return "[" + h.list(min(h.some(8), 4), func(int) string { return h.value(depth + 4) }) + "]"
		}
	case 2:
		if depth < 20 {
			return `{"a":` + h.value(depth+4) + `,"b":1}`
		}
	case 3:
		return fmt.Sprintf(`"%d"`, h.r.IntN(5000))
	}
	return h.number()
}

func (h *hostile) pattern() string {
	part := []string{"(a|b)*", "[a-z]{1,1000}", `\\pL`, "(a|ab|b){1,9}", ".", "(?i)k", "[^a]", "(x{30}){30}", "^a", `\\d+`, "(.|..){1,99}"}[h.r.IntN(11)]
	return `"` + strings.Repeat(part, min(h.some(len(part)), 6000/len(part))) + `"`
}

// schema is a subschema; some of what is within it is written once and repeated.
func (h *hostile) schema(depth int) string {
	if depth > 60 || h.left < 100 {
		return []string{"true", `{"$ref":"#"}`, `{"type":"string"}`, `{"const":1}`}[h.r.IntN(4)]
	}
	ref := func() string { return fmt.Sprintf(`{"$ref":"#/$defs/d%d"}`, h.r.IntN(12)) }
	same := func() func(int) string { // the same each time, but for a number
		s := []string{`{"$ref":"#/$defs/d1"}`, `{"type":"object","required":["k"],"properties":{"k":{"const":%d}}}`, `{"const":%d}`, `{"enum":[%d,"x"]}`, `{}`, `{"minLength":%d}`, `{"multipleOf":%d}`,
			`{"pattern":"^a%d"}`, `{"properties":{"p%d":{"type":"string"}}}`, `{"required":["p%d"]}`, `{"maximum":1e%d}`, `{"type":["string","null"],"format":"ipv6"}`}[h.r.IntN(12)]
		if h.r.IntN(4) == 0 {
			s = h.schema(depth + 20)
		}
		h.left += len(s)
		return func(i int) string {
			h.left -= len(s) + 1
			if h.left < 0 {
				return "true"
			}
			return strings.ReplaceAll(s, "%d", fmt.Sprint(i))
		}
	}
	many := func() string { item := same(); return h.list(h.some(40), item) }
	var out []string
	add := func(keyword, value string) { out = append(out, fmt.Sprintf("%q:%s", keyword, value)) }
	for range 1 + h.r.IntN(3) {
		switch h.r.IntN(20) {
		case 0:
			add("enum", "["+h.list(min(h.some(10), 3000), func(i int) string {
				if h.r.IntN(2) == 0 {
					return fmt.Sprintf("1e%d", 9999-i)
				}
				return h.value(0)
			})+"]")
		case 1:
			add("const", h.value(0))
		case 2:
			add("oneOf", "["+many()+"]")
		case 3:
			add("anyOf", "["+many()+"]")
		case 4:
			add("allOf", "["+many()+"]")
		case 5:
			add("properties", "{"+h.list(h.some(30), func(i int) string { return fmt.Sprintf(`"p%d":%s`, i, []string{"true", ref()}[h.r.IntN(2)]) })+"}")
		case 6:
			add("properties", "{"+h.text(h.some(1))+":"+h.schema(depth+1)+"}")
		case 7:
			add("patternProperties", "{"+h.list(min(h.some(20), 17), func(i int) string { return h.pattern() + ":true" })+"}")
		case 8:
			add("required", "["+h.list(h.some(8), func(i int) string { return fmt.Sprintf(`"p%d"`, i) })+"]")
		case 9:
			add("propertyNames", h.schema(depth+1))
		case 10:
			add("additionalProperties", []string{"false", h.schema(depth + 1)}[h.r.IntN(2)])
		case 11:
			add("prefixItems", "["+many()+"]")
		case 12:
			add("items", h.schema(depth+1))
		case 13:
			add("pattern", h.pattern())
		case 14:
			add("minimum", h.number())
			add("maximum", h.number())
		case 15:
			add("multipleOf", fmt.Sprint(1+h.r.IntN(1100)))
			add("type", `"integer"`)
		case 16:
			add("minProperties", fmt.Sprint(h.r.IntN(100)))
			add("maxProperties", fmt.Sprint(100+h.r.IntN(10000)))
		case 17:
			add("minItems", fmt.Sprint(h.r.IntN(1000000)))
			add("maxLength", h.number())
		case 18:
			add("$ref", fmt.Sprintf(`"#/$defs/d%d"`, h.r.IntN(12)))
		case 19:
			add("x"+fmt.Sprint(depth), h.value(0))
		}
	}
	if depth == 0 {
		share := h.left / 12
		defs := h.list(12, func(i int) string {
			h.left = share
			return fmt.Sprintf(`"d%d":%s`, i, h.schema(1))
		})
		add("$defs", "{"+defs+"}")
	}
	return "{" + strings.Join(out, ",") + "}"
}

// cpuTime is what the process has taken so far.
func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// bounded runs do, and requires that it takes at most 2 s of a processor and 256 MiB beside
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

// work compiles a schema in every way that a request may have it compiled, and begins an
// answer.
func work(t *testing.T, schema []byte) {
	b := c.NewBudget(t.Context(), c.DefaultWork)
	e, err := Compile(schema, Options{Budget: b})
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

// TestHostileSchemasAreBounded attacks what docs/security.md promises of a schema, with
// schemas of every size up to 1 MiB that are made by seed from all keywords.
func TestHostileSchemasAreBounded(t *testing.T) {
	seeds, largest := 60, 32<<10
	if testenv.At(testenv.Full) {
		seeds, largest = 400, 1<<20
	}
	for seed := range seeds {
		h := &hostile{rand.New(rand.NewPCG(uint64(seed), 5)), 0}
		h.left = largest >> h.r.IntN(8)
		schema := h.schema(0)
		if len(schema) > 1<<20 {
			continue
		}
		require.True(t, json.Valid([]byte(schema)), "seed %d: %.300s", seed, schema)
		what := fmt.Sprintf("seed %d, %d bytes: %.200s", seed, len(schema), schema)
		bounded(t, what, len(schema), func() { work(t, []byte(schema)) })
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

// TestCostlySchemas has the schemas that once took minutes or gigabytes, and what becomes
// of them.
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
		{"patterns and properties", `{"additionalProperties":false,"properties":{` + list(200, `"p%d":{}`) + `},"patternProperties":{` + list(16, `"(a|b){1,500}%d$":{}`) + `}}`, "alone"},
		{"a long name", `{"properties":{"` + strings.Repeat("a", 300_000) + `":{}}}`, "300000 bytes"},
		{"a long name that is required", `{"required":["` + strings.Repeat("a", 300_000) + `"]}`, "300000 bytes"},
		{"long names", `{"properties":{` + list(250, `"%d`+strings.Repeat("a", 4000)+`":{}`) + `}}`, "too much work"},
		{"large bounds", `{"allOf":[` + list(40, `{"maximum":1e200%d}`) + `]}`, ""},
		{"large bounds of properties", `{"properties":{` + list(40, `"p%d":{"maximum":1e2000}`) + `}}`, ""},
		{"many digits", `{"minimum":` + strings.Repeat("9", 500_000) + `}`, "at most 100 digits"},
		{"multiples", `{"properties":{` + list(100, `"p%d":{"type":"integer","multipleOf":9%d}`) + `}}`, "too much work"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var err error
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

// looks is a context that ends when it has been looked at so often.
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

// Whatever a compilation is doing, it ends when its request does.
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
	// What an answer cannot have does not bound it, and what it must have and cannot is refused.
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
