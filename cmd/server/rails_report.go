package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"

	"ringmaster/distributed/rdma/matrix"
)

// railsReport is what a host says of its RDMA devices: the output of rails here,
// the input of rails plan.
type railsReport struct {
	matrix.Host
	System  string   `json:"system"`            // "linux", "darwin"
	Library string   `json:"library,omitempty"` // the verbs library that was loaded
	Notes   []string `json:"notes,omitempty"`   // what is wrong with the host as a whole, with the cure
}

// text is the report for people.
func (r railsReport) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s (%s)", r.Name, r.System)
	if r.Library != "" {
		fmt.Fprintf(&b, ", %s", r.Library)
	}
	b.WriteString("\n")
	for _, d := range r.Devices {
		fmt.Fprintf(&b, "%s", d.Name)
		for _, w := range []string{d.Interface, d.Port, d.Link, d.State, d.Speed} {
			if w != "" {
				fmt.Fprintf(&b, ", %s", w)
			}
		}
		for _, a := range d.Addrs {
			fmt.Fprintf(&b, ", %v", a)
		}
		if d.FarDomain != "" {
			fmt.Fprintf(&b, ", a cable to %s", d.FarDomain)
		}
		b.WriteString("\n")
		if why := unusable(&d); why != "" {
			fmt.Fprintf(&b, "note: %s: %s\n", d.Name, why)
		}
	}
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "note: %s\n", n)
	}
	return b.String()
}

// unusable says why a device can be no end of a rail, and the cure; "" if
// nothing is known against it. Thunderbolt needs an IPv4 address: without one
// the port has no GID to be reached by. RoCE does with IPv6.
func unusable(d *matrix.Device) string {
	if !d.Active() {
		return fmt.Sprintf("its port is %s; look at the cable, and whether RDMA is enabled at both ends", d.State)
	}
	if d.Link != "Thunderbolt" {
		return ""
	}
	gid, _ := d.MappedGID()
	if gid >= 0 || len(d.GIDs) == 0 && inet4(d.Addrs) {
		return ""
	}
	return fmt.Sprintf("its interface %s has no IPv4 address; give it one of its own, outside any bridge: ifconfig %s inet 192.168.0.1 netmask 255.255.255.252 alias (192.168.0.2 at the other end)", d.Interface, d.Interface)
}

// inet4 tells whether one of the addresses is of IPv4.
func inet4(addrs []netip.Prefix) bool {
	for _, a := range addrs {
		if a.Addr().Is4() {
			return true
		}
	}
	return false
}

// maxRailsReport is more than the devices of any host take.
const maxRailsReport = 4 << 20

// readRails reads the report of a host. What a login shell has printed before it
// is passed over.
func readRails(path string) (r railsReport, err error) {
	f, err := os.Open(path)
	if err != nil {
		return r, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxRailsReport+1))
	if err != nil {
		return r, err
	}
	if len(text) > maxRailsReport {
		return r, fmt.Errorf("%s has more than %d bytes; expected the output of ringmaster rails here --json", path, maxRailsReport)
	}
	if at := bytes.Index(append([]byte("\n"), text...), []byte("\n{")); at > 0 {
		text = text[at:]
	}
	if err := json.NewDecoder(bytes.NewReader(text)).Decode(&r); err != nil {
		return r, fmt.Errorf("%s is not the output of ringmaster rails here --json: %w", path, err)
	}
	if r.System == "" {
		return r, fmt.Errorf("%s is not the output of ringmaster rails here --json: it names no system", path)
	}
	for _, d := range r.Devices {
		if d.Name == "" {
			return r, fmt.Errorf("%s: a device without a name; run ringmaster rails here --json there again", path)
		}
	}
	if r.Name == "" {
		r.Name = path
	}
	return r, nil
}
