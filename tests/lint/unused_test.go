package lint

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
)

// madeForTests are packages that no program links, with what they are. What they use
// does not count.
var madeForTests = map[string]string{
	"api/apitest":                      "a vocabulary of bytes",
	"constraint/jsonschema/schematest": "the schemas that cost most",
	"distributed/grouptest":            "the tests that drive any transport",
	"distributed/memory":               "a driver between goroutines",
	"engine/enginetest":                "models that run in microseconds",
	"gguf/gguftest":                    "small GGUF files",
	"internal/testenv":                 "how much of a test runs",
	"kernels/deferred":                 "a backend that runs nothing before Flush",
	"kernels/gpu/counting":             "a device that runs nothing",
	"kernels/kerneltest":               "cases that drive any backend",
	"kernels/reference":                "the ops in plain Go",
	"kernels/vulkan/vulkantest":        "a layer that makes calls fail",
	"model/decoder/decodertest":        "tests that every architecture passes",
}

// unusedStays is what no program uses and what stays, each with the reason, beside
// testOnly. What such a function uses needs no exception.
var unusedStays = map[string]string{
	"distributed.Group.AllMin":              "the contract of a group has the three reductions of JACCL",
	"distributed/rdma.driver.Cables":        "tests ask which rails a group uses",
	"distributed/rdma/verbs.Context.Device": "tests on Soft-RoCE name the device",
	"distributed/rdma/verbs.Library.Lost":   "tests ask what the driver did not give back",
	"distributed/accept.Pending.Len":        "tests of three packages count what is pending",
	"engine.Engine.Submit":                  "tests of three packages submit one request",
	"internal/flags.Value.Allowed":          "tests try the limits of every flag",
	"kernels/contract.Op.Move":              "kernels/deferred computes on copies",
	"kernels/cpu.Backend.Level":             "tests ask which instructions are used",
	"kernels/cpu.Backend.WorkingBytes":      "tests compare it with the memory plan",
	"kernels/hybrid.Backend.Waits":          "tests count waits",
	"metal.device.renewed":                  "a test cannot call C",
	"model/decoder.Decoder.Sizes":           "tests place any model",
	"model/tokenizer.Tokenizer.EOS":         "tests ask what was read from a file",
	"model/tokenizer.Tokenizer.Pad":         "as EOS",
	"model/tokenizer.Tokenizer.Raw":         "tests make texts of all tokens",
	"model/tokenizer.Tokenizer.Type":        "tests ask what was read from a file",
}

// TestUnusedByPrograms finds functions, types, methods, and methods of interfaces that
// only tests use, or nothing does. TestDeadCode does not see methods of types that are
// converted to an interface, because reflection could call them.
func TestUnusedByPrograms(t *testing.T) {
	testenv.Need(t, testenv.Full, "the search for what no program uses")
	exists := map[string]bool{}
	found, needless := unusedBy(t, func(path string) bool {
		exists[path] = true
		return madeForTests[path] != "" || strings.HasPrefix(path, "tests/")
	}, slices.Sorted(maps.Keys(testOnly)), slices.Sorted(maps.Keys(unusedStays)))
	var dead []string
	for _, name := range slices.Sorted(maps.Keys(found)) {
		dead = append(dead, found[name]+": "+name)
	}
	require.Empty(t, dead, "no program uses this:\n%s", strings.Join(dead, "\n"))
	require.Empty(t, needless, "is used by a program or by another exception, or gone: it needs no exception")
	for path := range madeForTests {
		require.True(t, exists[path], "%s does not exist: it needs no exception", path)
	}
}
