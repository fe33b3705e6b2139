package main

import (
	"bytes"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// run translates a source and returns the C++ and the rejections.
func run(src string) (string, []string) {
	var b bytes.Buffer
	translate("# 1 \"x.metal\"\n"+src, &b)
	return b.String(), problems
}

func TestRewrites(t *testing.T) {
	for name, c := range map[string][2]string{
		"constructor":         {"void f() { float4 v = float4(1, 2, 3, 4); }", "v = msl_ctor<float4>(1, 2, 3, 4)"},
		"declared so":         {"void f() { float3 v(1, 2, 3); }", "float3 v = msl_ctor<float3>(1, 2, 3)"},
		"cast":                {"void f(int4 i) { float4 v = (float4)i; }", "v = msl_cc<float4>()->*i"},
		"cast of an alias":    {"typedef half4 h4;\nvoid f(int4 i) { h4 v = (h4)i; }", "msl_cc<h4>()->*i"},
		"alias in a body":     {"void f(int4 i) { using h4 = half4; h4 v = (h4)i; }", "msl_cc<h4>()->*i"},
		"cast of a parameter": {"template <typename T> T f(int4 i) { return (T)i; }", "return msl_cc<T>()->*i"},
		"vec":                 {"void f(int4 i) { vec<float, 4> v = vec<float, 4>(i); }", "msl_ctor<vec<float, 4>>(i)"},
		"member type":         {"template <typename T> void f(int4 i) { auto v = (typename T::v4)i; }", "msl_cc<typename T::v4>()->*i"},
		"call in parentheses": {"void f(float4 x) { float4 y = g(float4)(x); }", "g(float4)(x)"},
		"float":               {"void f() { float x = 1.5 + 1e3 + 2.f + 0x10; }", "1.5f + 1e3f + 2.f + 0x10;"},
		"half":                {"void f() { half x = 1.5h; }", "((half)1.5f)"},
		"unroll":              {"void f() {\n#pragma unroll(4)\n for (;;) {}\n}", "for (;;)"},
		"threadgroup":         {"kernel void k(device float *a [[buffer(0)]]) { threadgroup float s[4], t; }", "MSL_TGVAR float s[4], t; MSL_TGNOTE(s); MSL_TGNOTE(t);"},
		"threadgroup pointer": {"kernel void k(threadgroup float *a [[threadgroup(0)]]) { threadgroup float *p = a; }", "threadgroup float *p = a;"},
		"function constant":   {"constant bool c [[function_constant(3)]];", "static bool c; static bool c_msl_def"},
		"derived constant":    {"constant bool c [[function_constant(3)]];\nconstant int d = c ? 1 : 2;", "#define d ( c ? 1 : 2)"},
		"arguments": {"kernel void k(constant int &n [[buffer(1)]], device float *a, uint i [[thread_position_in_grid]]) {}",
			"{MK_BUF,1},{MK_BUF,2},{MK_TPIG,0},"},
		"host name":        {"template <typename T>\nkernel void k(device T *a [[buffer(0)]]) {}\ntemplate [[host_name(\"k_half\")]] kernel void k<half>(device half *a);", `MSL_KERNEL("k_half", 1, msl_a_k, msl_n_k, k<half>)`},
		"instance of type": {"template <typename T>\nkernel void k(device T *a [[buffer(0)]]) {}\ntemplate [[host_name(\"k_half\")]] kernel decltype(k<half>) k<half>;", `MSL_KERNEL("k_half", 1, msl_a_k, msl_n_k, k<half>)`},
	} {
		t.Run(name, func(t *testing.T) {
			out, refused := run(c[0])
			require.Empty(t, refused)
			require.Contains(t, out, c[1])
		})
	}
}

// TestNeeds: which function constants a kernel requires.
func TestNeeds(t *testing.T) {
	out, refused := run(`constant bool a [[function_constant(0)]];
constant int b [[function_constant(1)]];
constant int c [[function_constant(2)]];
constant int d = is_function_constant_defined(b) ? b : 1;
int g() { return c; }
int h() { return g(); }
kernel void none(device int *x [[buffer(0)]]) { x[0] = 1; }
kernel void direct(device int *x [[buffer(0)]]) { x[0] = a; }
kernel void through(device int *x [[buffer(0)]]) { x[0] = h(); }
kernel void asks(device int *x [[buffer(0)]]) { x[0] = d; }
`)
	require.Empty(t, refused)
	for kernel, needs := range map[string]string{"none": "-1", "direct": "0,-1", "through": "2,-1", "asks": "-1"} {
		require.Contains(t, out, "msl_n_"+kernel+"[] = {"+needs+"}")
	}
}

// TestLinesStay: a token keeps its line whatever was rewritten before it.
func TestLinesStay(t *testing.T) {
	out, _ := run(`constant bool
  a
  [[function_constant(0)]];
constant int b =
  a ? 1
    : 2;
template <typename T>
[[host_name("x")]]
kernel
void k(device T *p [[buffer(0)]],
       uint i [[thread_position_in_grid]]) {
  threadgroup
    float s[4];
#pragma unroll
  HERE14;
}
template [[host_name("y")]]
kernel void k<int>(device int *p,
                   uint i);
HERE19
`)
	for _, name := range []string{"HERE14", "HERE19"} {
		require.Contains(t, out, name)
		line := 0
		for l := range strings.SplitSeq(out, "\n") {
			if at, ok := strings.CutPrefix(l, "# "); ok && strings.Contains(l, "x.metal") {
				n, err := strconv.Atoi(strings.Fields(at)[0])
				require.NoError(t, err)
				line = n - 1
				continue
			}
			line++
			if strings.Contains(l, name) {
				require.Equal(t, strings.TrimPrefix(name, "HERE"), strconv.Itoa(line), out)
			}
		}
	}
}

// TestOverloadsMayCall: an overload that calls another is not recursion.
func TestOverloadsMayCall(t *testing.T) {
	_, refused := run("float f(float x) { return x; }\nfloat f(half x) { return f((float)x); }")
	require.Empty(t, refused)
	_, refused = run("float f(float x) { return f(x); }")
	require.Len(t, refused, 1)
	require.Contains(t, refused[0], "x.metal:1: error: f calls itself")
}

// TestGlobals: what is a variable at program scope, and what is not.
func TestGlobals(t *testing.T) {
	for _, ok := range []string{"constant float t[2] = {1, 2};", "struct s { int a; };", "struct s;", "typedef float4 v;", "int f(int a);",
		"enum { A = 1 };", "constexpr constant int n = 3;", "using v = float4;", "static_assert(sizeof(int) == 4, \"\");", "template <typename T> struct s { T a; };",
		"namespace n {\nconstant int a = 1;\n}"} {
		_, refused := run(ok)
		require.Empty(t, refused, ok)
	}
	for _, bad := range []string{"int a;", "const int a = 1;", "constexpr int a = 1;", "float t[2];", "struct s { int a; } v;", "device int *p;", "namespace n {\nint a = 1;\n}"} {
		_, refused := run(bad)
		require.Len(t, refused, 1, bad)
	}
}
