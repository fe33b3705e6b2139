//go:build cgo && linux

package verbs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/tests/fakeverbs"
)

// compile makes a shared library or a program of a C text.
func compile(t *testing.T, text string, flags ...string) (string, []byte, error) {
	t.Helper()
	dir := t.TempDir()
	src, out := filepath.Join(dir, "x.c"), filepath.Join(dir, "x.out")
	require.NoError(t, os.WriteFile(src, []byte(text), 0o600))
	here, err := os.Getwd()
	require.NoError(t, err)
	msg, err := exec.Command("cc", append(flags, "-std=c11", "-D_GNU_SOURCE", "-I"+here, src, "-o", out)...).CombinedOutput()
	return out, msg, err
}

// TestMissingSymbol: the error names each missing symbol.
func TestMissingSymbol(t *testing.T) {
	text, err := os.ReadFile("rm_lib.c")
	require.NoError(t, err)
	all := regexp.MustCompile(`\{"(_?ibv_\w+)", &lib->\w+, 0\}`).FindAllStringSubmatch(string(text), -1)
	require.Len(t, all, 18)
	for skip := range all {
		lib := ""
		for i, m := range all {
			if i != skip {
				lib += "int " + m[1] + "(void);\nint " + m[1] + "(void) { return 0; }\n"
			}
		}
		path, msg, err := compile(t, lib, "-shared", "-fPIC")
		require.NoError(t, err, "%s", msg)
		_, err = Open(path)
		require.ErrorIs(t, err, distributed.ErrUnavailable)
		require.ErrorContains(t, err, path+" has no symbol "+all[skip][1])
	}
}

// TestNoDevice: a library without a device cannot form a group.
func TestNoDevice(t *testing.T) {
	lib, err := Open(fakeverbs.New(t, "").Path)
	require.NoError(t, err)
	_, err = lib.Devices()
	require.ErrorIs(t, err, distributed.ErrUnavailable)
	require.ErrorContains(t, err, "lists no RDMA device")
	require.NoError(t, lib.Close())
}

// TestSystemLibrary: the library of this machine, if it has one, loads by its
// versioned symbols, and lists devices or reports that it has none.
func TestSystemLibrary(t *testing.T) {
	lib, err := Open("libibverbs.so.1")
	if err != nil {
		require.ErrorIs(t, err, distributed.ErrUnavailable)
		t.Skipf("NOT CHECKED: %v (Debian: libibverbs1)", err)
	}
	devices, err := lib.Devices()
	if err != nil {
		require.ErrorIs(t, err, distributed.ErrUnavailable)
	}
	t.Logf("%v %v", devices, err)
	require.NoError(t, lib.Close())
}

// TestMasks: the library takes each transition with exactly these attributes;
// one more or one fewer is refused, so that a change of the masks fails here.
func TestMasks(t *testing.T) {
	f := fakeverbs.New(t, "device a link=eth\ndevice b host=1 link=eth\nswitch a b\n")
	lib, err := Open(f.Path)
	require.NoError(t, err)
	dev, err := lib.Device("a")
	require.NoError(t, err)
	ctx, err := dev.Open()
	require.NoError(t, err)
	defer func() { require.NoError(t, ctx.Close()); require.NoError(t, lib.Close()) }()
	pd, err := ctx.AllocPD()
	require.NoError(t, err)
	cq, err := ctx.CreateCQ(4)
	require.NoError(t, err)
	gids, err := ctx.GIDs(1)
	require.NoError(t, err)
	gid, err := FindIPv4GID(gids)
	require.NoError(t, err)
	common := []int{maskState | maskPKey | maskPort | maskAccess, maskState | maskAV | maskMTU | maskDestQPN | maskRQPSN, maskState | maskSQPSN}
	for kind, more := range map[QPType][]int{UC: {0, 0, 0}, RC: {0, maskDestRD | maskMinRNR, maskTimeout | maskRetry | maskRNR | maskRD}} {
		for target := range 3 {
			mask := common[target] | more[target]
			for bit := 0; bit <= 20; bit++ {
				qp, err := pd.CreateQP(QPConfig{Type: kind, SendCQ: cq, RecvCQ: cq, Caps: Caps{SendWR: 1, RecvWR: 1}})
				require.NoError(t, err)
				steps := []func() error{
					func() error { return qp.Init(1) },
					func() error {
						return qp.RTR(Route{PeerQPN: 1, Global: true, PeerGID: gid.GID, SGIDIndex: gid.Index, PathMTU: 3})
					},
					func() error { return qp.RTS(0, DefaultRetries) },
				}
				for _, s := range steps[:target] {
					require.NoError(t, s())
				}
				a := Transition{State: target + 1, Port: 1, MTU: 3, GID: gid.GID, SGIDIndex: gid.Index, Global: 1, Mask: mask ^ 1<<bit}
				require.Equal(t, int(syscall.EINVAL), ctx.calls.ModifyQP(qp.raw, a), "%v step %d bit %d", kind, target, bit)
				require.NoError(t, steps[target](), "the right mask still works")
				require.NoError(t, qp.Destroy())
			}
		}
	}
}

// TestAbiIsTheHeaders compares sizes, offsets and constants with the header of
// the system, if it is installed.
func TestAbiIsTheHeaders(t *testing.T) {
	if _, msg, err := compile(t, "#include <infiniband/verbs.h>\nint main(void) { return 0; }\n"); err != nil {
		t.Skipf("NOT CHECKED: no infiniband/verbs.h here (Debian: libibverbs-dev)\n%s", msg)
	}
	header, err := os.ReadFile("rm_verbs.h")
	require.NoError(t, err)
	var b strings.Builder
	b.WriteString("#include <infiniband/verbs.h>\n#include \"rm_verbs.h\"\n")
	checks := 0
	// Sizes and offsets: what the header asserts is asserted of the system's.
	nested := map[string]string{"ah_attr.flow_label": "grh.", "ah_attr.sgid_index": "grh.", "ah_attr.hop_limit": "grh.",
		"send_wr.remote_addr": "wr.rdma.", "send_wr.rkey": "wr.rdma."}
	for _, m := range regexp.MustCompile(`(?m)^RMV_SIZE\(rmv_(\w+), (\d+)\);`).FindAllStringSubmatch(string(header), -1) {
		name, op := "ibv_"+m[1], "=="
		if m[1] == "port_attr" {
			op = "<=" // ours has room for all versions
		}
		fmt.Fprintf(&b, "_Static_assert(sizeof(struct %s) %s sizeof(struct rmv_%s), \"%s\");\n", name, op, m[1], name)
		checks++
	}
	for _, m := range regexp.MustCompile(`(?m)^RMV_AT\(rmv_(\w+), (\w+), (\d+)\);`).FindAllStringSubmatch(string(header), -1) {
		field := nested[m[1]+"."+m[2]] + m[2]
		fmt.Fprintf(&b, "_Static_assert(offsetof(struct ibv_%s, %s) == %s && offsetof(struct rmv_%s, %s) == %s, \"%s.%s\");\n",
			m[1], field, m[3], m[1], m[2], m[3], m[1], m[2])
		checks++
	}
	fmt.Fprintf(&b, "_Static_assert(offsetof(struct ibv_gid_entry, gid_type) == offsetof(struct rmv_gid_entry, gid_type), \"\");\n")
	fmt.Fprintf(&b, "_Static_assert(sizeof(union ibv_gid) == sizeof(union rmv_gid) && _Alignof(union ibv_gid) == _Alignof(union rmv_gid), \"\");\n")
	// Constants: RMV_X is IBV_X, but for three families.
	rename := map[string]string{
		"RMV_WR_SEND": "IBV_WR_SEND", "RMV_LINK_UNSPECIFIED": "IBV_LINK_LAYER_UNSPECIFIED",
		"RMV_LINK_INFINIBAND": "IBV_LINK_LAYER_INFINIBAND", "RMV_LINK_ETHERNET": "IBV_LINK_LAYER_ETHERNET",
		"RMV_GID_IB": "IBV_GID_TYPE_IB", "RMV_GID_ROCE_V1": "IBV_GID_TYPE_ROCE_V1", "RMV_GID_ROCE_V2": "IBV_GID_TYPE_ROCE_V2",
	}
	consts := regexp.MustCompile(`(?m)^\t(RMV_\w+) = (\d+),`).FindAllStringSubmatch(string(header), -1)
	require.Greater(t, len(consts), 45)
	for _, m := range consts {
		if m[1] == "RMV_LINK_THUNDERBOLT" {
			continue // only the header of the macOS SDK has it
		}
		name := rename[m[1]]
		if name == "" {
			name = "IBV_" + strings.TrimPrefix(m[1], "RMV_")
		}
		fmt.Fprintf(&b, "_Static_assert((int)%s == (int)%s, \"%s\");\n", name, m[1], m[1])
		checks++
	}
	// The constants of the Go side.
	for name, v := range map[string]int{
		"IBV_QP_STATE": maskState, "IBV_QP_ACCESS_FLAGS": maskAccess, "IBV_QP_PKEY_INDEX": maskPKey, "IBV_QP_PORT": maskPort,
		"IBV_QP_AV": maskAV, "IBV_QP_PATH_MTU": maskMTU, "IBV_QP_TIMEOUT": maskTimeout, "IBV_QP_RETRY_CNT": maskRetry,
		"IBV_QP_RNR_RETRY": maskRNR, "IBV_QP_RQ_PSN": maskRQPSN, "IBV_QP_MAX_QP_RD_ATOMIC": maskRD, "IBV_QP_MIN_RNR_TIMER": maskMinRNR,
		"IBV_QP_SQ_PSN": maskSQPSN, "IBV_QP_MAX_DEST_RD_ATOMIC": maskDestRD, "IBV_QP_DEST_QPN": maskDestQPN,
		"IBV_QPT_RC": int(RC), "IBV_QPT_UC": int(UC), "IBV_QPS_RTS": int(StateRTS), "IBV_QPS_ERR": int(StateErr), "IBV_PORT_ACTIVE": int(PortActive),
		"IBV_MTU_4096": 5, "IBV_MTU_256": 1, "IBV_ACCESS_REMOTE_READ": int(AccessRemoteRead), "IBV_ACCESS_REMOTE_WRITE": int(AccessRemoteWrite),
	} {
		fmt.Fprintf(&b, "_Static_assert((int)%s == %d, \"%s\");\n", name, v, name)
		checks++
	}
	for s := range Status(Statuses) {
		fmt.Fprintf(&b, "_Static_assert((int)IBV_WC_%v == %d, \"%v\");\n", s, int(s), s)
		checks++
	}
	b.WriteString("int main(void) { return 0; }\n")
	_, msg, err := compile(t, b.String(), "-Wall", "-Wextra")
	require.NoError(t, err, "%s", msg)
	t.Logf("%d sizes, offsets and constants are those of the system's header", checks)
	// A wrong one is found.
	_, _, err = compile(t, strings.Replace(b.String(), "== 200 &&", "== 208 &&", 1))
	require.Error(t, err)
}
