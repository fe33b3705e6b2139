package bringup

import (
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed/rdma/verbs"
)

// Soft-RoCE has longer timeouts than a card: a busy processor makes its packets.
func TestRetries(t *testing.T) {
	soft := &device{attr: verbs.DeviceAttr{VendorID: verbs.VendorSoftRoCE}}
	card := &device{attr: verbs.DeviceAttr{VendorID: 0x02c9}}
	require.Equal(t, verbs.SoftRetries, soft.retries())
	require.Equal(t, verbs.DefaultRetries, card.retries())
	require.Greater(t, verbs.SoftRetries.Timeout, verbs.DefaultRetries.Timeout)
}
