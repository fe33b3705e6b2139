package commands

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
)

// swap is a part of a command that is replaced here; without from, to is appended.
// In to, {NAME} is a folder or file of the bed, or else a free address of this host.
type swap struct{ from, to, why string }

// step runs a command.
type step struct {
	document, has string   // has is a part of the command that no other of the document has
	swaps         []swap   // what is replaced
	also          [][]swap // with these replaced too, each, the command is run again beside itself
	input         string   // stdin
	serves        string   // it runs on, and is ready when this address says so
	joins         bool     // it runs on, with the others of its group
	ends          bool     // it runs beside the next commands, and ends by itself with exit code 0
	check         func(t *testing.T, b *bed, output string)
}

// group is commands that run after each other, with the servers that they start.
type group struct {
	name  string
	needs []string // programs
	steps []step
}

const (
	readme     = "README.md"
	operations = "docs/operations.md"
	scaling    = "docs/scaling.md"
)

// What is replaced for the same reason in several commands.
const (
	otherPort  = "other tests run at the same time"
	noSuchHost = "no other hosts"
	noModel    = "the file of the built-in model stands for one that a reader has"
	fewThreads = "the test machine has few cores"
)

var (
	scripts   = swap{"scripts/", "{root}/scripts/", "it runs in a temporary folder"}
	toOne     = swap{"http://127.0.0.1:8080", "http://{one}", otherPort}
	toModel   = swap{"F.gguf", "{model}", noModel}
	fewTokens = swap{"", " --tokens 2", "time"}
	inModels  = swap{"/models/F.gguf", "{model}", noModel}
)

// ranks are the replacements in a command of one rank of a group.
func ranks(name string, more ...swap) []swap {
	return append([]swap{toModel, {"10.0.0.1:9000", "{" + name + " coordinator}", noSuchHost}, {"", " --threads 1", fewThreads}}, more...)
}

// protected is a group with keys and encryption, and a check of it.
var protected = []step{
	{document: operations, has: "> cluster.key && chmod"},
	{document: operations, has: "CN=group"},
	{document: operations, has: "key new operator"},
	{document: operations, has: "--key-file $PWD/cluster.key", serves: "protected",
		swaps: []swap{scripts, {" -- ", " --listen {protected} --coordinator-port {port} -- --threads 1 ", otherPort + "; " + fewThreads}}},
	{document: operations, has: "SSL_CERT_FILE=", check: passes("group.json"),
		swaps: []swap{{"localhost:8080", "{protected}", otherPort}, {"32323", "{port}", otherPort}, {"--soak 1s", "--soak 20ms --tokens 2", "time"}}},
	{document: operations, has: "https://localhost:8080/metrics", swaps: []swap{{"localhost:8080", "{protected}", otherPort}}, check: says("\nringmaster_group_ranks 3\n")},
	{document: operations, has: "https://localhost:8080/cluster", swaps: []swap{{"localhost:8080", "{protected}", otherPort}}, check: says("<html")},
}

// passes checks the verdict of a report.
func passes(report string) func(*testing.T, *bed, string) {
	return func(t *testing.T, b *bed, _ string) { require.Contains(t, b.read(t, report), `"verdict": "pass"`) }
}

var groups = []group{
	{"a server and a group", []string{"curl", "git"}, []step{
		{document: readme, has: "scripts/run.sh", swaps: []swap{scripts, {"", " --listen {one}", otherPort}}, serves: "one"},
		{document: readme, has: "\"temperature\": 0\n", swaps: []swap{toOne}, check: asShown},
		{document: readme, has: "get_weather", swaps: []swap{toOne}, check: says(`"name":"get_weather","arguments":"{\"city\": \"Paris\"}"`)},
		{document: readme, has: "guided_choice", swaps: []swap{toOne}, check: says("The capital of France is Paris.")},
		{document: operations, has: "bin/ringmaster chat", swaps: []swap{{"", " --url http://{one}", otherPort}}, input: "What is the capital of France?\n", check: says("Paris")},
		{document: operations, has: "chat --url", swaps: []swap{{"http://10.0.0.1:8080", "http://{one}", noSuchHost}}, input: "What is the capital of Spain?\n", check: says("Madrid")},
		{document: operations, has: "git diff |", swaps: []swap{{"chat ", "chat --url http://{one} ", otherPort}}, check: func(t *testing.T, b *bed, _ string) {
			require.NotEmpty(t, strings.TrimSpace(b.read(t, "review.md")))
		}},
		{document: readme, has: "launch --local 3", serves: "many", check: threeRanks("many", ""), swaps: []swap{{"", " --listen {many} --coordinator-port {port} -- --threads 1", otherPort + "; " + fewThreads}}},
		{document: operations, has: "verify --url http://10.0.0.1:8080", swaps: []swap{{"10.0.0.1:8080", "{many}", noSuchHost}, {"10.0.0.9:8080", "{one}", noSuchHost}, fewTokens},
			check: passes("report.json")},
		{document: operations, has: "--record one.json", swaps: []swap{{"one:8080", "{one}", noSuchHost}, fewTokens}},
		{document: operations, has: "--recorded one.json", swaps: []swap{{"many:8080", "{many}", noSuchHost}, fewTokens}},
		{document: operations, has: "correctness.sh", swaps: []swap{scripts, {"one:8080", "{one}", noSuchHost}, {"many:8080", "{many}", noSuchHost}, fewTokens}},
		{document: operations, has: "--soak 10s --report", swaps: []swap{{"10.0.0.1:9000", "127.0.0.1:{port}", noSuchHost}, {"10s", "20ms", "time"}},
			check: passes("ranks.json")},
		{document: operations, has: "--link 10g", swaps: []swap{{"10.0.0.1:9000", "127.0.0.1:{port}", noSuchHost}, inModels, {" --link 10g", " --soak 20ms", "the ranks share a busy host"}},
			check: says("and this host, all other weights on every rank: the same bits")},
	}},
	{"a protected group", []string{"openssl", "curl"}, protected},
	{"a model file", nil, []step{
		{document: readme, has: "run.sh --model", serves: "file", swaps: []swap{scripts, {"DeepSeek-V4-Flash-Q4_K-00001-of-00004.gguf", "{model}", noModel},
			{"127.0.0.1:8080", "{file}", otherPort}, {"--ctx 65536", "--ctx 4096", "the built-in model has no longer context"}}},
		{document: operations, has: "mac,x2 --link", check: says("rank 0")},
		{document: operations, has: "roce-25g --table", check: says("| 8 | all |")},
		{document: operations, has: "gpu=24GiB", check: says("vulkan+cpu")},
		{document: operations, has: "--link rdma+1g", check: says("recommended: --stages 2: ")},
		{document: operations, has: "--prefill 512 --decode 64 --json", swaps: []swap{toModel, {"", " --threads 1", fewThreads}}},
		{document: operations, has: "--prefill 0 --decode 64 --sequences 8", swaps: []swap{toModel, {"", " --threads 1", fewThreads}}},
		{document: operations, has: "simulate --bench", swaps: []swap{{"1,10,100", "1,4", "time"}}, check: says("conversations/s: ")},
		{document: scaling, has: "--groups 1,10,100 --balance", swaps: []swap{{"1,10,100", "1,4", "time"}}, check: says("conversations/s: ")},
		{document: scaling, has: "bin/ringmaster simulate --prefill 400 --decode 1=20,8=60 --duration 10m --groups 1000", swaps: []swap{{"1000", "4", "time"}}, check: says("conversations/s: ")},
		{document: scaling, has: "--groups 1000 --maxconn", swaps: []swap{{"1000", "4", "time"}}, check: says("conversations/s: ")},
		{document: operations, has: "plan --model", swaps: []swap{toModel}, check: func(t *testing.T, _ *bed, out string) { require.True(t, json.Valid([]byte(out)), out) }},
		{document: operations, has: "bin/ringmaster doctor --model /models/F.gguf", swaps: []swap{inModels, {"", " || test $? -lt 5", "what it finds depends on this host"}}, check: says("worst: ")},
	}},
	{"keys", nil, []step{
		{document: operations, has: "key new alice", check: says("rm-")},
		{document: operations, has: "key new ci", swaps: []swap{{"2027-01-31", "2999-01-31", "the date of the example passes"}}},
		{document: operations, has: "--audit-log", swaps: []swap{{"", " --listen {keys}", otherPort}}, serves: "keys", check: func(t *testing.T, b *bed, _ string) {
			require.Regexp(t, `(?m)^alice\b[^\n]*\n(.*\n)*ci\b`, b.read(t, "keys"))
			require.Equal(t, 401, b.status(t, "http://"+b.name("keys")+"/v1/models"))
			require.Contains(t, b.read(t, "audit.jsonl"), `"status":401`)
		}},
	}},
	{"TLS", []string{"openssl", "curl"}, []step{
		{document: operations, has: "CN=ringmaster"},
		{document: operations, has: "--tls-cert cert.pem", swaps: []swap{{"", " --listen {tls}", otherPort}}, serves: "tls"},
		{document: operations, has: "curl --cacert", swaps: []swap{{"localhost:8080", "{tls}", otherPort}}, check: says("ringmaster-builtin")},
	}},
	{"copies of a model", nil, []step{
		{document: operations, has: "share /models/F.gguf", swaps: []swap{inModels, {"10.0.0.1:9000", "{share coordinator}", noSuchHost}}, ends: true},
		{document: operations, has: "share --dir", ends: true, swaps: []swap{{"10.0.0.1:9000", "{share coordinator}", noSuchHost}, {"/models", "{dir}/models1", "all ranks are on this host"}},
			also: [][]swap{{{"--rank 1", "--rank 2", "the comment behind it says so"}, {"/models1", "/models2", "all ranks are on this host"}}}},
	}},
	{"ranks by hand", nil, []step{
		{document: readme, has: "ringmaster serve", swaps: ranks("by hand", swap{"", " --listen {by hand}", otherPort}), serves: "by hand", check: threeRanks("by hand", ""),
			also: [][]swap{{{"--rank 0", "--rank 1", "the comment behind it says so"}}, {{"--rank 0", "--rank 2", "the comment behind it says so"}}}},
	}},
	{"ranks with a key", nil, []step{
		{document: operations, has: "serve --model F.gguf --distributed --world-size 3 --coordinator 10.0.0.1:9000 --rank 1", swaps: ranks("with key"), joins: true},
		{document: operations, has: "serve --model F.gguf --distributed --world-size 3 --coordinator 10.0.0.1:9000 --rank 2", swaps: ranks("with key"), joins: true},
		{document: operations, has: "--rank 0 --listen", swaps: ranks("with key", swap{"0.0.0.0:8080", "{with key}", otherPort}, swap{"…", "a-secret", "a key that is left out"}), serves: "with key", check: threeRanks("with key", "a-secret")},
	}},
	{"installing", []string{"make"}, []step{
		{document: operations, has: "make install", swaps: []swap{{"make", "make -C {root}", "it runs in a temporary folder"}, {"", " DESTDIR={dir}/dest", "it must not change this host"}},
			check: func(t *testing.T, b *bed, _ string) {
				require.FileExists(t, filepath.Join(b.dir, "dest/usr/local/bin/ringmaster"))
			}},
	}},
}

// other is a command that is not run here.
type other struct{ document, has, test, why string }

var elsewhere = []other{
	{document: readme, has: "scripts/test.sh", why: "it runs this test"},
	{document: readme, has: "launch --model /models/F.gguf host1", test: "tests/cluster TestLaunchHosts"},
	{document: readme, has: "ringmaster up", test: "tests/cluster TestUpAndJoin"},
	{document: readme, has: "ringmaster join", test: "tests/cluster TestUpAndJoin"},
	{document: operations, has: "ringmaster up", test: "tests/cluster TestUpAndJoin"},
	{document: operations, has: "ringmaster join", test: "tests/cluster TestUpAndJoin"},
	{document: operations, has: "systemd-sysusers", test: "tests/install TestInstall"},
	{document: operations, has: "install -D -m 600", why: "it would change this host"},
	{document: operations, has: "install -D -m 640", test: "distributed/control TestReadKeyOfRoot"},
	{document: operations, has: "systemctl enable", why: "no systemd runs here"},
	{document: operations, has: "jaeger &", why: "Jaeger is not in Debian"},
	{document: operations, has: "OTEL_EXPORTER_OTLP_ENDPOINT", test: "cmd/server TestServeOnRanks"},
	{document: operations, has: "make release", test: "tests/install TestRelease"},
	{document: operations, has: "pull hf:", test: "cmd/server TestPullCommand"},
	{document: operations, has: "pull https:", test: "internal/pull TestPullAnAddress"},
	{document: operations, has: "doctor --model /models/F.gguf host1", test: "internal/doctor TestRemote"},
	{document: operations, has: "mpirun", test: "tests/mpi TestServe"},
	{document: operations, has: "srun", why: "there is no Slurm: Debian's needs its daemons as root"},
	{document: scaling, has: "haproxy", test: "tests/scaling TestTwoGroups"},
	{document: scaling, has: "sbatch", why: "there is no Slurm: Debian's needs its daemons as root"},
}

// says checks that the output has a text.
func says(text string) func(*testing.T, *bed, string) {
	return func(t *testing.T, _ *bed, output string) { require.Contains(t, output, text) }
}

// threeRanks checks that a server leads a group of as many.
func threeRanks(name, key string) func(*testing.T, *bed, string) {
	return func(t *testing.T, b *bed, _ string) {
		status, text := b.get(t, "http://"+b.name(name)+"/metrics", key)
		require.Equal(t, 200, status)
		require.Contains(t, text, "\nringmaster_group_ranks 3\n")
	}
}

// asShown checks that the answer is the one that the README shows, but for what is
// another each time.
func asShown(t *testing.T, _ *bed, output string) {
	text := testenv.ReadFile(t, filepath.Join(root, readme))
	shown := regexp.MustCompile("(?s)```json\n(.*?)```").FindSubmatch(text)
	require.NotNil(t, shown)
	var want, got map[string]any
	require.NoError(t, json.Unmarshal(shown[1], &want))
	require.NoError(t, json.Unmarshal([]byte(output), &got), output)
	for _, name := range []string{"id", "created", "system_fingerprint", "timings"} {
		require.Contains(t, got, name)
		got[name] = want[name]
	}
	require.Equal(t, want, got)
}
