package cluster

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestStrangersCannotFillTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r ration
		lines := 0
		for range 1000 {
			if ok, _ := r.take(); ok {
				lines++
			}
		}
		require.Equal(t, rationLines, lines)
		<-time.After(rationPeriod)
		ok, omitted := r.take()
		require.True(t, ok)
		require.Equal(t, 1000-rationLines, omitted)
		ok, omitted = r.take()
		require.True(t, ok)
		require.Zero(t, omitted)
	})
}

// TestRejectionsAreRationed: the leader's log lines about rejections are
// rationed.
func TestRejectionsAreRationed(t *testing.T) {
	var log bytes.Buffer
	l := &Leader{cfg: Config{Log: slog.New(slog.NewTextHandler(&log, nil))}}
	for range 1000 {
		l.rejected(&net.TCPAddr{}, errors.New("it is no rank"))
	}
	require.Equal(t, rationLines, strings.Count(log.String(), "rejected a connection"))
}
