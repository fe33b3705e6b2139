package node

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"ringmaster/internal/units"
)

// Backend is the kind of processor that computes.
type Backend uint8

// The backends. AutoBackend is the GPU if this build supports it and the host has a
// suitable one, else the CPU.
const (
	AutoBackend Backend = iota
	CPUBackend
	MetalBackend
	VulkanBackend
)

// backendNames are their names.
var backendNames = []string{"auto", "cpu", "metal", "vulkan"}

// Compute is what computes: the value of --backend.
type Compute struct {
	Backend Backend
	// ExpertsOnCPU leaves the routed experts to the CPU even if the GPU has room for them.
	ExpertsOnCPU bool
	// GPUMemory is the most bytes that the model takes of the GPU's memory, 0 for what the
	// GPU recommends or has free.
	GPUMemory int64
}

// ComputeNames are what ParseCompute reads, without sizes.
var ComputeNames = append(slices.Clone(backendNames), "metal"+withCPU, "vulkan"+withCPU)

// ComputeForm describes what ParseCompute reads.
const ComputeForm = "auto, cpu, metal or vulkan; after a GPU +cpu, or :SIZE, such as vulkan:10GiB"

// withCPU follows the name of a GPU's backend if the CPU computes the experts.
const withCPU = "+cpu"

// ParseCompute reads the name of a backend. After auto and those of GPUs may stand "+cpu",
// ExpertsOnCPU, and then ":" with GPUMemory.
func ParseCompute(s string) (c Compute, err error) {
	name, size, limited := strings.Cut(s, ":")
	name, c.ExpertsOnCPU = strings.CutSuffix(name, withCPU)
	i := slices.Index(backendNames, name)
	if i < 0 {
		return c, fmt.Errorf("backend is %q; expected auto, cpu, metal or vulkan", name)
	}
	c.Backend = Backend(i)
	if limited {
		if c.GPUMemory, err = units.ParseBytes(size); err == nil && c.GPUMemory <= 0 {
			err = fmt.Errorf("%q is no size", size)
		}
	}
	if err == nil && c.Backend == CPUBackend && (c.ExpertsOnCPU || limited) {
		err = errors.New("cpu has no GPU")
	}
	return c, err
}

// limited returns what the model may take of a GPU that offers so many bytes.
func (c Compute) limited(bytes int64) int64 {
	if c.GPUMemory > 0 {
		return min(bytes, c.GPUMemory)
	}
	return bytes
}
