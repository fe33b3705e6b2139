package cluster

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMessages(t *testing.T) {
	hello := testHello(1, 2)
	for _, m := range []message{
		{Kind: kindHello, Hello: &hello}, {Kind: kindWelcome, Group: "g"}, {Kind: kindReject, Reason: "no", Retry: true},
		{Kind: kindForm, Epoch: 3, Settings: []byte("s")}, {Kind: kindConnect, Epoch: 3, Token: []byte{1}, Addrs: []string{"a", "b"}},
		{Kind: kindWork, Epoch: 3, Number: 1 << 40, Payload: []byte("p")}, {Kind: kindDone, Epoch: 3, Number: 2, Digest: Digest{1, 1 << 31}},
		{Kind: kindVerdict, Epoch: 3, Peer: -1, Reason: "r", Addr: "x"}, {Kind: kindLeave, Reason: "r", All: true},
		{Kind: kindDrain, Peer: 2}, {Kind: kindDrained, Reason: "r"}, {Kind: kindHeartbeat}, {Kind: kindReportRequest}, {Kind: kindReport, Payload: []byte("r")},
		{Kind: kindExamine, Payload: []byte("r")}, {Kind: kindExamined, Payload: []byte("r")},
	} {
		got, err := decode(m.Kind, m.encode())
		require.NoError(t, err)
		require.Equal(t, m, got)
	}
	for _, c := range []struct {
		k       kind
		payload string
	}{{kindWork, "short"}, {kindDone, "12 bytes here+"}, {kindHello, "{}"}, {kindVerdict, "{"}, {99, ""}, {0, ""}} {
		_, err := decode(c.k, []byte(c.payload))
		require.Error(t, err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(uint16(kindDone), message{Kind: kindDone, Digest: Digest{1}}.encode())
	f.Add(uint16(kindForm), []byte(`{"epoch":1}`))
	f.Fuzz(func(t *testing.T, k uint16, payload []byte) {
		m, err := decode(kind(k), payload)
		if err != nil {
			return
		}
		again, err := decode(m.Kind, m.encode())
		require.NoError(t, err)
		require.Equal(t, m.encode(), again.encode())
	})
}
