package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"

	"github.com/spf13/cobra"

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

// newRails builds the commands that find the RDMA cables between hosts.
func newRails() *cobra.Command {
	rails := &cobra.Command{
		Use:   "rails",
		Short: "Find the RDMA devices of hosts and the cables between them",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		// Nothing here belongs to a group or a model: their flags are not checked.
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			return fromEnvironment(cmd.Flags(), os.LookupEnv)
		},
	}
	rails.AddCommand(newRailsHere(hostProbe), newRailsPlan())
	return rails
}

func newRailsHere(probe func() *railsProbe) *cobra.Command {
	var asJSON bool
	var name string
	cmd := &cobra.Command{
		Use:   "here",
		Short: "Tell what this host knows of its RDMA devices",
		Long: `Tells which RDMA devices this host has, what they are attached to, and what is
missing. It opens no device and changes nothing.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p := probe()
			if name != "" {
				p.name = name
			}
			report := p.report(cmd.Context())
			if !asJSON {
				_, err := io.WriteString(cmd.OutOrStdout(), report.text())
				return err
			}
			enc := json.NewEncoder(cmd.OutOrStdout())
			enc.SetEscapeHTML(false)
			enc.SetIndent("", "  ")
			return enc.Encode(report)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print for rails plan instead of for people")
	cmd.Flags().StringVar(&name, "name", "", "`name` of the host in the map; empty is its own")
	return cmd
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

func newRailsPlan() *cobra.Command {
	var out string
	var switched bool
	cmd := &cobra.Command{
		Use:   "plan HOST0.json HOST1.json ...",
		Short: "Find the cables between hosts and write the device matrix",
		Long: `Reads what rails here --json has printed on each host, in the order of the ranks,
finds out which devices are the ends of one cable, prints who is joined to whom,
and writes the file for JACCL_IBV_DEVICES or MLX_IBV_DEVICES.`,
		Args: cobra.RangeArgs(2, 8),
		RunE: func(cmd *cobra.Command, args []string) error {
			reports := make([]railsReport, len(args))
			for i, path := range args {
				var err error
				if reports[i], err = readRails(path); err != nil {
					return err
				}
			}
			plan, err := planRails(reports, switched, matrix.RingWanted(os.LookupEnv))
			if _, werr := io.WriteString(cmd.OutOrStdout(), plan.Map); err == nil {
				err = werr
			}
			if err != nil {
				return err
			}
			if out == "" {
				_, err = cmd.OutOrStdout().Write(plan.Matrix.Format())
				return err
			}
			return os.WriteFile(out, plan.Matrix.Format(), 0o644)
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "`file` for the matrix; empty prints it after the map")
	cmd.Flags().BoolVar(&switched, "switched", false, "all ports are on one switched InfiniBand or RoCE network, so every port reaches every other")
	return cmd
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

// railsPlan is what planRails has found.
type railsPlan struct {
	Matrix   matrix.Matrix
	Topology matrix.Topology
	Map      string // for people: cables, what was left out and why, ring or mesh
}

// planRails finds the cables between hosts, which are the ranks in their order.
// The map is there with an error too.
func planRails(reports []railsReport, switched, ring bool) (railsPlan, error) {
	if err := sameMachine(reports); err != nil {
		return railsPlan{}, err
	}
	var hosts, usable []matrix.Host
	var notes []string
	linux, devices := false, 0
	for rank, r := range reports {
		linux = linux || r.System == "linux"
		h := matrix.Host{Name: r.Name}
		for _, n := range r.Notes {
			notes = append(notes, fmt.Sprintf("rank %d %s: %s", rank, r.Name, n))
		}
		for _, d := range r.Devices {
			if why := unusable(&d); why != "" {
				notes = append(notes, fmt.Sprintf("rank %d %s %s is left out: %s", rank, r.Name, d.Name, why))
				continue
			}
			h.Devices = append(h.Devices, d)
		}
		devices += len(h.Devices)
		hosts, usable = append(hosts, r.Host), append(usable, h)
	}
	n := matrix.Discover(usable, switched)
	limitRails(&n)
	n.Notes = append(n.Notes, notes...)
	plan := railsPlan{Matrix: n.Matrix, Map: n.Map(hosts)}
	if err := n.Matrix.Check("", matrix.Rules{Switched: switched}); err != nil {
		return plan, err
	}
	var err error
	if plan.Topology, err = n.Matrix.Choose(matrix.Wish{Ring: ring}); err != nil {
		return plan, fmt.Errorf("the hosts are not joined for RDMA: %w", notJoined(err, linux && !switched && devices > 0))
	}
	plan.Map += plan.summary() + "\n"
	return plan, nil
}

// limitRails leaves out what a pair has above the greatest number of cables.
func limitRails(n *matrix.Network) {
	count := map[[2]int]int{}
	kept := n.Cables[:0:0]
	for _, c := range n.Cables {
		pair := [2]int{c.RankA, c.RankB}
		if count[pair]++; count[pair] > matrix.MaxRails {
			n.Notes = append(n.Notes, fmt.Sprintf("rank %d %s <-> rank %d %s is left out: a pair uses at most %d cables", c.RankA, c.DeviceA, c.RankB, c.DeviceB, matrix.MaxRails))
			continue
		}
		kept = append(kept, c)
	}
	n.Cables = kept
	for _, row := range n.Matrix {
		for j, names := range row {
			row[j] = names[:min(len(names), matrix.MaxRails)] // in the order of the cables
		}
	}
}

// notJoined is the text of a failed choice without the place in a file that
// does not exist yet.
func notJoined(err error, mayBeSwitched bool) error {
	var p *matrix.Problem
	if errors.As(err, &p) {
		err = fmt.Errorf("%s; %s", p.What, p.Cure)
	}
	if mayBeSwitched {
		err = fmt.Errorf("%w. Cables of Linux hosts are known by a subnet of their own, /30 or /31, for each; if the ports are on a switch, say --switched", err)
	}
	return err
}

// summary tells how the ranks will be joined.
func (p railsPlan) summary() string {
	cables := "1 cable"
	if n := p.Topology.Rails; n > 1 {
		cables = fmt.Sprintf("%d cables", n)
	}
	s := p.Topology.Why + "; " + cables + " for each pair"
	if len(p.Topology.Ring) > 2 {
		order := make([]string, len(p.Topology.Ring))
		for i, r := range p.Topology.Ring {
			order[i] = fmt.Sprint(r)
		}
		s += "; ranks " + strings.Join(order, " - ") + " - " + order[0]
	}
	return s
}

// sameMachine fails when two reports are of one machine: a host that is named
// twice would otherwise look like one with cables to nobody.
func sameMachine(reports []railsReport) error {
	owner := map[string]int{}
	for rank, r := range reports {
		for _, d := range r.Devices {
			id := d.Domain
			if id == "" && d.PortGUID != "" && d.MAC != "" {
				id = d.PortGUID + " " + d.MAC
			}
			if id == "" {
				continue
			}
			if first, ok := owner[id]; ok && first != rank {
				return fmt.Errorf("rank %d (%s) and rank %d (%s) are the same machine: both have %s; name each host once", first, reports[first].Name, rank, r.Name, id)
			}
			owner[id] = rank
		}
	}
	return nil
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
