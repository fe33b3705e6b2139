package rails

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"

	"ringmaster/distributed/rdma/matrix"
	"ringmaster/internal/safetext"
)

// Report describes the RDMA devices of a host: the output of rails here and
// the input of rails plan.
type Report struct {
	matrix.Host
	System  string   `json:"system"`            // "linux", "darwin"
	Library string   `json:"library,omitempty"` // the verbs library that was loaded
	Notes   []string `json:"notes,omitempty"`   // problems of the host as a whole, with their cures
}

// text formats the report for people.
func (r Report) Text() string {
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
			fmt.Fprintf(&b, ", cable to %s", d.FarDomain)
		}
		b.WriteString("\n")
		if why := Unusable(&d); why != "" {
			fmt.Fprintf(&b, "note: %s: %s\n", d.Name, why)
		}
	}
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "note: %s\n", n)
	}
	return b.String()
}

// Unusable says why a device cannot be the end of a rail, with the cure; "" if it
// can, as far as is known. Thunderbolt needs an IPv4 address or a link-local IPv6
// one: without either the port has no GID under which it can be reached.
func Unusable(d *matrix.Device) string {
	if !d.Active() {
		return fmt.Sprintf("its port is %s; check the cable, and that RDMA is enabled on both hosts", d.State)
	}
	if d.Link != "Thunderbolt" {
		return ""
	}
	gid, _ := d.MappedGID()
	if gid >= 0 || d.LinkLocalGID() || len(d.GIDs) == 0 && reachable(d.Addrs) {
		return ""
	}
	return fmt.Sprintf("its interface %s has neither an IPv4 address nor a link-local IPv6 one; addresses may appear only minutes after boot; otherwise assign it one of its own, outside any bridge: ifconfig %s inet 192.168.0.1 netmask 255.255.255.252 alias (192.168.0.2 on the other host)", d.Interface, d.Interface)
}

// reachable reports whether one of the addresses makes a GID of a Thunderbolt
// port.
func reachable(addrs []netip.Prefix) bool {
	return slices.ContainsFunc(addrs, func(a netip.Prefix) bool { return a.Addr().Is4() || a.Addr().IsLinkLocalUnicast() })
}

// maxReport is more bytes than the report of any host has.
const maxReport = 4 << 20

// ReadReport reads the report of a host. It skips what a login shell has printed
// before the report.
func ReadReport(path string) (r Report, err error) {
	f, err := os.Open(path)
	if err != nil {
		return r, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxReport+1))
	if err != nil {
		return r, err
	}
	return ParseReport(path, text)
}

// ParseReport reads the output of rails here --json; from names it in errors. A shell may
// have printed lines before it.
func ParseReport(from string, text []byte) (r Report, err error) {
	if len(text) > maxReport {
		return r, fmt.Errorf("%s has more than %d bytes; expected the output of ringmaster rails here --json", from, maxReport)
	}
	if at := bytes.Index(append([]byte("\n"), text...), []byte("\n{")); at > 0 {
		text = text[at:]
	}
	if err := json.NewDecoder(bytes.NewReader(text)).Decode(&r); err != nil {
		return r, fmt.Errorf("%s is not the output of ringmaster rails here --json: %w", from, safetext.Error(err, safetext.Evidence))
	}
	safetext.Strings(&r, safetext.Evidence)
	if r.System == "" {
		return r, fmt.Errorf("%s is not the output of ringmaster rails here --json: the system is missing", from)
	}
	for _, d := range r.Devices {
		if d.Name == "" {
			return r, fmt.Errorf("%s: a device has no name; run ringmaster rails here --json on that host again", from)
		}
	}
	r.Name = cmp.Or(r.Name, from)
	return r, nil
}
