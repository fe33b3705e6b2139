package matrix

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"
)

// The parsers read what tools of the host print. They skip unknown text, because the tools
// print more with every release. They never fail: fields that they do not find stay empty in
// Device.

// ParseIBVDevices reads the output of ibv_devices: device names and node GUIDs.
func ParseIBVDevices(text string) []Device {
	var all []Device
	listed := false
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 2 && strings.Trim(f[0], "-") == "" && strings.Trim(f[1], "-") == "" {
			listed = true
			continue
		}
		if listed && len(f) == 2 {
			if guid, ok := parseGUID(f[1]); ok && len(all) < maxDevices {
				all = append(all, Device{Name: f[0], PortGUID: guid})
			}
		}
	}
	return all
}

var hexDigits = regexp.MustCompile(`^[0-9a-f]{16}$`)

// parseGUID accepts 506b4b0300c0ffee and 506b:4b03:00c0:ffee, with and without 0x.
func parseGUID(s string) (string, bool) {
	s = strings.ReplaceAll(strings.TrimPrefix(strings.ToLower(s), "0x"), ":", "")
	return s, hexDigits.MatchString(s)
}

var (
	hcaLine = regexp.MustCompile(`^hca_id:\s*(\S+)`)
	gidLine = regexp.MustCompile(`^GID\[\s*(\d{1,4})\]:\s*([0-9a-fA-F:.]+)`)
)

// ParseIBVDevinfo reads the output of ibv_devinfo -v: the GUID of every device,
// and the state, link layer and GIDs of its port 1.
func ParseIBVDevinfo(text string) []Device {
	var all []Device
	port := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if m := hcaLine.FindStringSubmatch(line); m != nil {
			if len(all) == maxDevices {
				break
			}
			all = append(all, Device{Name: m[1]})
			port = ""
			continue
		}
		if len(all) == 0 {
			continue
		}
		d := &all[len(all)-1]
		key, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch {
		case key == "node_guid":
			if guid, ok := parseGUID(value); ok {
				d.PortGUID = guid
			}
		case key == "transport" && strings.HasPrefix(value, "Thunderbolt"):
			d.Link = "Thunderbolt"
		case key == "port":
			port = value
		case port != "1":
		case key == "state":
			d.State = parseState(value)
		case key == "link_layer" && d.Link == "":
			d.Link = value
		default:
			d.addGID(line)
		}
	}
	return all
}

// parseState returns ACTIVE for "PORT_ACTIVE (4)" and for "4: ACTIVE".
func parseState(s string) string {
	for _, w := range strings.Fields(s) {
		w = strings.TrimPrefix(w, "PORT_")
		if w != "" && strings.Trim(w, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_") == "" {
			return w
		}
	}
	return ""
}

func (d *Device) addGID(line string) {
	m := gidLine.FindStringSubmatch(line)
	if m == nil {
		return
	}
	d.setGID(m[1], m[2])
}

// Bounds on what is kept for one host. They exceed every real host; they exist so that
// garbage costs little memory.
const (
	maxDevices = 128
	maxGIDs    = 256
	maxAddrs   = 64 // of an interface
)

func (d *Device) setGID(index, gid string) {
	var i int
	if _, err := fmt.Sscanf(index, "%d", &i); err != nil || i < 0 || i >= maxGIDs {
		return
	}
	a, err := netip.ParseAddr(gid)
	if err != nil || a.IsUnspecified() {
		return
	}
	for len(d.GIDs) <= i {
		d.GIDs = append(d.GIDs, netip.Addr{})
	}
	d.GIDs[i] = a
}

const sysfsRoot = "/sys/class/infiniband/"

// ParseSysfs reads a listing of /sys/class/infiniband, one file on a line as
// "path:content", directories as their path alone: what
//
//	grep -H . /sys/class/infiniband/*/node_guid /sys/class/infiniband/*/parent \
//	  /sys/class/infiniband/*/ports/1/state /sys/class/infiniband/*/ports/1/link_layer \
//	  /sys/class/infiniband/*/ports/1/gids/* /sys/class/infiniband/*/ports/1/gid_attrs/ndevs/*
//	ls -d /sys/class/infiniband/*/device/net/*
//
// print. The network interface of a device is the one under device/net, that of
// soft-RoCE its parent, otherwise the one of its first GID.
func ParseSysfs(text string) []Device {
	var all []Device
	byName := map[string]int{}
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), sysfsRoot)
		if !ok {
			continue
		}
		path, content, _ := strings.Cut(rest, ":")
		name, path, ok := strings.Cut(path, "/")
		if !ok || name == "" {
			continue
		}
		i, ok := byName[name]
		if !ok {
			if len(all) == maxDevices {
				continue
			}
			i = len(all)
			byName[name] = i
			all = append(all, Device{Name: name})
		}
		all[i].sysfs(path, strings.TrimSpace(content))
	}
	return all
}

func (d *Device) sysfs(path, content string) {
	at := func(prefix string) string {
		rest, ok := strings.CutPrefix(path, prefix)
		if !ok || strings.Contains(rest, "/") {
			return ""
		}
		return rest
	}
	switch {
	case path == "node_guid":
		if guid, ok := parseGUID(content); ok {
			d.PortGUID = guid
		}
	case path == "parent" || at("ports/1/gid_attrs/ndevs/") != "":
		if d.Interface == "" {
			d.Interface = content
		}
	case at("device/net/") != "":
		d.Interface = at("device/net/")
	case path == "ports/1/state":
		d.State = parseState(content)
	case path == "ports/1/link_layer":
		d.Link = content
	case at("ports/1/gids/") != "":
		d.setGID(at("ports/1/gids/"), content)
	}
}
