package mpi

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
)

// FuzzHeader: any header of a message is refused or decodes to itself, and is
// compared with the current operation.
func FuzzHeader(f *testing.F) {
	want := header{kind: distributed.Broadcast, dtype: distributed.NoDType, root: 3, epoch: 7, seq: 9, total: 100}
	b := make([]byte, headerSize)
	want.put(b)
	f.Add(b)
	f.Add(make([]byte, headerSize))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := parseHeader(b, 1)
		if err != nil {
			require.ErrorIs(t, err, distributed.ErrDesync)
			return
		}
		require.NotEmpty(t, h.String())
		again := make([]byte, headerSize)
		h.put(again)
		same, err := parseHeader(again, 1)
		require.NoError(t, err)
		require.Equal(t, h, same)
		if h != want {
			require.ErrorIs(t, h.check(&want, 1, 64, 64), distributed.ErrDesync)
		}
	})
}

// FuzzControlMessage: any text is refused or is a message that can be encoded
// again.
func FuzzControlMessage(f *testing.F) {
	f.Add([]byte(`{"kind":"probe","addresses":["127.0.0.1:1","x"],"nonce":"AAAA"}`))
	f.Add([]byte(`{"kind":"probed","reached":[true,false]}`))
	f.Add([]byte(`{"kind":"hello","epoch":4294967296}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var m controlMessage
		if len(text) > controlSize || json.Unmarshal(text, &m) != nil {
			return
		}
		again, err := json.Marshal(m)
		require.NoError(t, err)
		var back controlMessage
		require.NoError(t, json.Unmarshal(again, &back))
		require.Empty(t, m.differs(back))
	})
}
