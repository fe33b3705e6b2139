//go:build linux && cgo

// Package inguest holds the tests that run inside the guest that package rdmavm
// boots, on its soft-RoCE devices.
package inguest

import (
	"fmt"
	"os"
	"testing"

	"ringmaster/tests/rdmavm/job"
)

// peerVariable turns this program into the process at the other end: its value
// is a peerConfig.
const peerVariable = "RDMAVM_PEER"

func TestMain(m *testing.M) {
	for variable, serve := range map[string]func(string) error{peerVariable: servePeer, rankVariable: serveRank} {
		config := os.Getenv(variable)
		if config == "" {
			continue
		}
		if err := serve(config); err != nil {
			fmt.Fprintf(os.Stderr, "%s=%s: %v\n", variable, config, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if os.Getenv(job.RailsVariable) == "" {
		fmt.Println("these tests run inside the guest that tests/rdmavm boots")
		os.Exit(0)
	}
	os.Exit(m.Run())
}
