//go:build linux && cgo

package vulkan_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	structs     = regexp.MustCompile(`(?s)typedef (?:struct|union) (\w+) \{\n(.*?)\n\}`)
	members     = regexp.MustCompile(`(\w+)(?:\[\w+\])*;`)
	enumerators = regexp.MustCompile(`(?m)^\t(VK_\w+) =`)
)

// TestDeclarations: our excerpt of Khronos' header has its sizes, offsets and values.
func TestDeclarations(t *testing.T) {
	const theirs = "/usr/include/vulkan/vulkan_core.h"
	if _, err := os.Stat(theirs); err != nil {
		t.Skip("NOT CHECKED: the headers of Vulkan are not installed")
	}
	base, err := os.ReadFile("vk_base.h")
	require.NoError(t, err)
	ours, err := os.ReadFile("vk.h")
	require.NoError(t, err)
	ours = append(base, ours...)
	var list strings.Builder
	n := 0
	say := func(format, value string) {
		n++
		fmt.Fprintf(&list, "\tprintf(\"%s %%lld\\n\", (long long)(%s));\n", format, value)
	}
	for _, s := range structs.FindAllStringSubmatch(string(ours), -1) {
		say(s[1], "sizeof("+s[1]+")")
		for _, m := range members.FindAllStringSubmatch(s[2], -1) {
			say(s[1]+"."+m[1], "offsetof("+s[1]+", "+m[1]+")")
		}
	}
	for _, e := range enumerators.FindAllStringSubmatch(string(ours), -1) {
		say(e[1], e[1])
	}
	require.Greater(t, n, 500, "the excerpt is read")
	source := filepath.Join(t.TempDir(), "list.c")
	text := "#include <stddef.h>\n#include <stdio.h>\n#define VK_NO_PROTOTYPES\n#include HEADER\nint main(void) {\n" + list.String() + "}\n"
	require.NoError(t, os.WriteFile(source, []byte(text), 0o644))
	require.Equal(t, declared(t, source, theirs), declared(t, source, "vk.h"))
}

// declared compiles source with a header and returns what it prints.
func declared(t *testing.T, source, header string) string {
	header, err := filepath.Abs(header)
	require.NoError(t, err)
	program := filepath.Join(t.TempDir(), "list")
	out, err := exec.Command("cc", "-DHEADER=\""+header+"\"", "-o", program, source).CombinedOutput()
	require.NoError(t, err, string(out))
	out, err = exec.Command(program).Output()
	require.NoError(t, err)
	return string(out)
}
