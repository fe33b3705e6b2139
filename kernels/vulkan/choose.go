package vulkan

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"ringmaster/internal/units"
)

// Kind is what a device is made of.
type Kind int

// The kinds of devices, with Vulkan's numbers.
const (
	Other Kind = iota
	Integrated
	Discrete
	Virtual
	CPU
)

func (k Kind) String() string {
	switch k {
	case Integrated:
		return "integrated"
	case Discrete:
		return "discrete"
	case Virtual:
		return "virtual"
	case CPU:
		return "computes on the CPU"
	}
	return "other"
}

// Description is what a driver says of a device.
type Description struct {
	Name, Driver string
	Kind         Kind
	// Missing is what the kernels need and the device does not have, "" if nothing.
	Missing string
	// Heap is the bytes of the device's largest heap, Budget those that this process may
	// use now; BudgetKnown is whether the driver says so.
	Heap, Budget uint64
	BudgetKnown  bool
	// Unified devices share the host's memory; of others Visible bytes are seen by the host.
	Unified bool
	Visible uint64
	// Imports is whether weights can stay in the mapped file.
	Imports bool
	// Heaps are all of the device's, the host's among them; MaxBuffer is the bytes of the largest buffer.
	Heaps     []Heap
	MaxBuffer uint64
	// Version is that of Vulkan, SharedMemory the bytes of a workgroup, Workgroup its most
	// threads, and Subgroups the least and most threads of a subgroup.
	Version                 string
	SharedMemory, Workgroup uint32
	Subgroups               [2]uint32
}

// Heap is a heap of memory. Budget is as in Description.
type Heap struct {
	Bytes, Budget uint64
	Local         bool // it is the device's own, not the host's
}

// Choose returns the number of the device that Open takes where none is named in the
// options.
func Choose(all []Description) (int, error) { return choose(all, os.Getenv(DeviceVariable)) }

// choose returns the number of the wanted device, or of the best.
func choose(all []Description, wanted string) (int, error) {
	if wanted != "" {
		return named(all, wanted)
	}
	best, gpus := -1, 0
	for i, d := range all {
		if d.Kind == CPU {
			continue
		}
		gpus++
		if d.Missing != "" {
			continue
		}
		if best < 0 || better(d, all[best]) {
			best = i
		}
	}
	if best < 0 {
		return 0, &UnsuitableError{Reason: "no GPU that Vulkan shows can run the kernels" + listed(all) + "; use --backend cpu", NoGPU: gpus == 0}
	}
	return best, nil
}

// better reports whether d is preferred to the other.
func better(d, other Description) bool {
	rank := func(d Description) int {
		switch d.Kind {
		case Discrete:
			return 2
		case Integrated:
			return 1
		}
		return 0
	}
	if rank(d) != rank(other) {
		return rank(d) > rank(other)
	}
	return d.Heap > other.Heap
}

// named finds a device by its number or a part of its name.
func named(all []Description, wanted string) (int, error) {
	if n, err := strconv.Atoi(wanted); err == nil && n >= 0 && n < len(all) {
		return n, nil
	}
	for i, d := range all {
		if strings.Contains(strings.ToLower(d.Name), strings.ToLower(wanted)) {
			return i, nil
		}
	}
	return 0, &UnsuitableError{Reason: fmt.Sprintf("no Vulkan device has %q in its name%s; see %s", wanted, listed(all), DeviceVariable)}
}

// listed names the devices, in parentheses.
func listed(all []Description) string {
	if len(all) == 0 {
		return " (there are none: the GPU's driver for Vulkan is not installed, or VK_DRIVER_FILES names another)"
	}
	var names []string
	for i, d := range all {
		text := fmt.Sprintf("%d: %s, %s", i, d.Name, d.Kind)
		if d.Missing != "" {
			text += ", has no " + d.Missing
		}
		names = append(names, text)
	}
	return " (" + strings.Join(names, "; ") + ")"
}

// Memory describes the memory of a device.
func (d Description) Memory() string {
	text := fmt.Sprintf("%s, %s free", units.Bytes(d.Heap), units.Bytes(d.Budget))
	if !d.BudgetKnown {
		text = fmt.Sprintf("%s, free unknown", units.Bytes(d.Heap))
	}
	switch {
	case d.Unified && d.Imports:
		return text + ", shared with the host, weights stay in the file"
	case d.Unified:
		return text + ", shared with the host, weights are copied"
	case d.Visible <= 256<<20:
		return text + "; the host sees " + units.Bytes(d.Visible) + " of it: buffers are in the host's memory (turn on Resizable BAR in the firmware)"
	}
	return text
}
