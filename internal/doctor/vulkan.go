package doctor

import (
	"cmp"
	"fmt"
	"strings"

	"ringmaster/internal/units"
)

// Kinds of devices that a check asks for.
const (
	softwareKind   = "software"
	integratedKind = "integrated"
)

// driverCures are where the vendors' drivers for Vulkan come from.
var driverCures = map[string]string{
	"NVIDIA": "install NVIDIA's driver (Debian nvidia-vulkan-icd, Ubuntu libnvidia-gl-N); in a container also NVIDIA_DRIVER_CAPABILITIES=all",
	"AMD":    "install Mesa's driver (mesa-vulkan-drivers, on Arch vulkan-radeon), and let the user open /dev/dri/renderD* (group render)",
	"Intel":  "install Mesa's driver (mesa-vulkan-drivers, on Arch vulkan-intel), and let the user open /dev/dri/renderD* (group render)",
}

// checkVulkan checks what --backend vulkan would find.
func checkVulkan(h *Facts) (out []Finding) {
	v := h.Vulkan
	if v == nil {
		return nil
	}
	gpus := 0
	for i := range v.Devices {
		if v.Devices[i].Kind != softwareKind {
			gpus++
		}
		out = append(out, vulkanDevice(h, i)...)
	}
	if gpus == 0 {
		return append(out, vulkanNone(v))
	}
	if v.Refused != "" {
		out = append(out, finding(Warning, "use a name of this list in RINGMASTER_VULKAN_DEVICE, or --backend cpu", "no device can be taken: %s", v.Refused))
	} else {
		out = append(out, finding(OK, "", "--backend vulkan takes device %s", v.Chosen))
	}
	return out
}

// vulkanNone says that Vulkan shows no GPU. That is as it should be on a host without one.
func vulkanNone(v *Vulkan) Finding {
	evidence := "Vulkan shows no device"
	if len(v.Devices) > 0 {
		evidence = "Vulkan shows only devices in software, which --backend auto does not take"
	}
	evidence = cmp.Or(v.Error, evidence)
	severity, cures := Note, []string{"if this host has a GPU, " + cmp.Or(v.Cure, "install its driver for Vulkan")}
	if len(v.Cards) > 0 {
		evidence += ", and the PCI bus has a GPU of " + strings.Join(v.Cards, " and ")
		cures = cures[:0]
		if v.Cure != "" {
			cures = append(cures, v.Cure)
		}
	}
	for _, vendor := range v.Cards {
		cures = append(cures, cmp.Or(driverCures[vendor], "install its driver for Vulkan"))
		if vendor != "Intel" { // most are a processor's, for a display
			severity = Warning
		}
	}
	if name, _, set := strings.Cut(v.Drivers, "="); set {
		evidence += "; " + v.Drivers + " chooses the drivers"
		cures = append([]string{"unset " + name + ", or let it name the driver of the GPU, a file in /usr/share/vulkan/icd.d"}, cures...)
	}
	return finding(severity, strings.Join(cures, "; "), "%s", evidence)
}

// vulkanDevice describes device i and says what is wrong with it.
func vulkanDevice(h *Facts, i int) (out []Finding) {
	d := &h.Vulkan.Devices[i]
	var heaps []string
	own := VulkanHeap{}
	for _, heap := range d.Heaps {
		text := units.Bytes(heap.Bytes)
		if d.Free {
			text += fmt.Sprintf(" (%s free)", units.Bytes(heap.Free))
		} else {
			text += " (free unknown)"
		}
		if !heap.Local {
			text += " of the host"
		} else if heap.Bytes > own.Bytes {
			own = heap
		}
		heaps = append(heaps, text)
	}
	subgroups := fmt.Sprint(d.Subgroups[0])
	if d.Subgroups[1] != d.Subgroups[0] {
		subgroups = fmt.Sprintf("%d to %d", d.Subgroups[0], d.Subgroups[1])
	}
	out = append(out, finding(OK, "", "%d: %s, %s, driver %s, Vulkan %s; heaps: %s; largest buffer %s, workgroups of %d, %s of shared memory, subgroups of %s",
		i, d.Name, d.Kind, orUnknown(d.Driver), d.Version, orNone(heaps), units.Bytes(d.LargestBuffer), d.Workgroup, units.Bytes(int64(d.SharedMemory)), subgroups))
	if d.Missing != "" {
		severity := Warning
		if d.Kind == softwareKind {
			severity = Note
		}
		return append(out, finding(severity, "install a newer driver, or use --backend cpu", "the kernels cannot run on device %d, which has no %s", i, d.Missing))
	}
	if !d.Shared && d.Visible <= 256<<20 {
		out = append(out, finding(Note, "turn on Resizable BAR (Above 4G Decoding) in the firmware", "the host sees %s of device %d's memory, so that buffers are in the host's", units.Bytes(d.Visible), i))
	}
	if d.Kind == integratedKind && h.Memory > 0 && own.Bytes < h.Memory/2 {
		pages := (h.Memory - min(leaveFree, h.Memory/4)) / 4096
		out = append(out, finding(Note, fmt.Sprintf("for a host that runs nothing else, ttm.pages_limit=%d on the kernel's command line, in pages of 4 KiB, if the GPU is AMD's, whose driver offers half of the memory", pages),
			"device %d may use %s of this host's %s", i, units.Bytes(own.Bytes), units.Bytes(h.Memory)))
	}
	if d.Kind != softwareKind && d.Free && own.Free < own.Bytes/4*3 {
		out = append(out, finding(Note, "end other programs that use the GPU (nvidia-smi, radeontop or intel_gpu_top name them)", "only %s of %s of device %d are free", units.Bytes(own.Free), units.Bytes(own.Bytes), i))
	}
	return out
}

func orUnknown(s string) string { return cmp.Or(s, "unknown") }
