package node

import (
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed/rdma/matrix"
	"ringmaster/distributed/rdma/rails"
)

// TestEncryptedTransport: with auto and a device matrix, on does without RDMA and
// tcp-only does not.
func TestEncryptedTransport(t *testing.T) {
	m := matrix.Matrix{{nil, {"rdma_en5"}}, {{"rdma_en5"}, nil}}
	for value, want := range map[Encryption]string{NoEncryption: "rdma", FullEncryption: "tcp", TCPOnlyEncryption: "rdma"} {
		g := &Group{Size: 2, Matrix: m, MatrixFile: "devices.json", Encrypt: value}
		cfg := g.Config(g.Hello())
		require.Equal(t, want, cfg.Transport.Name(), value)
		require.NoError(t, cfg.Transport.Close())
	}
}

// TestRailsProbe checks that the transport learns the devices of this host.
func TestRailsProbe(t *testing.T) {
	g := &Group{Matrix: matrix.Matrix{{nil, {"rdma_en2"}}, {{"rdma_en3"}, nil}}, MatrixFile: "devices.json"}
	opts := g.rails()
	require.True(t, opts.OrSide)
	require.False(t, opts.Rules.Switched)
	want := rails.Here(t.Context(), "").Host
	require.NotEmpty(t, want.Name)
	require.Equal(t, want, opts.Ask(t.Context()))
}
