package cluster

import (
	"errors"
	"io"
	"net"
	"syscall"

	"ringmaster/distributed"
)

// noAnswer: what was sent on a connection was not acknowledged.
const noAnswer = "no answer from the network"

// closeCause says in a few words why a connection ended.
func closeCause(err error) string {
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed):
		return "connection closed"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "connection reset"
	case errors.Is(err, syscall.ETIMEDOUT):
		return noAnswer
	}
	return err.Error()
}

// peerOf returns the rank, in the numbering of the whole group, that an
// operation blames for its failure.
func peerOf(err error) (int, bool) {
	if op, ok := errors.AsType[*distributed.OpError](err); ok && op.Peer >= 0 {
		return op.WorldPeer(), true
	}
	return -1, false
}
