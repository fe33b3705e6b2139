package harness

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// FirewallAvailable returns why hosts can have no firewall here, nil if they can.
func FirewallAvailable() error {
	if _, err := exec.LookPath("nft"); err != nil {
		return fmt.Errorf("firewalls of network namespaces need nft, which is not installed (Debian: nftables)")
	}
	return nil
}

// Firewall replaces the rules of a rank's host, in the language of nft: rules for
// arriving packets (input), for leaving packets (output), and for translated source
// addresses (postrouting). Without rules everything passes.
func (n *Net) Firewall(rank int, rules map[string][]string) error {
	var s strings.Builder
	s.WriteString("flush ruleset\n")
	for chain, lines := range rules {
		kind, priority := "filter", "0"
		if chain == "postrouting" {
			kind, priority = "nat", "100"
		}
		fmt.Fprintf(&s, "add table inet test\nadd chain inet test %s { type %s hook %s priority %s; policy accept; }\n", chain, kind, chain, priority)
		for _, l := range lines {
			fmt.Fprintf(&s, "add rule inet test %s %s\n", chain, l)
		}
	}
	argv := n.Command(rank, "nft", "-f", "-")
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdin = strings.NewReader(s.String())
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("nft: %w: %s\n%s", err, bytes.TrimSpace(out), s.String())
	}
	return nil
}

// Hosts gives a rank's host an /etc/hosts of its own (ip netns exec mounts it).
func (n *Net) Hosts(rank int, text string) error {
	dir := filepath.Join(etcNetns, n.host(rank))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "hosts"), []byte(text), 0o644)
}

// etcNetns is where ip netns exec looks for the files of a namespace.
const etcNetns = "/etc/netns"

// IP runs the ip command on a rank's host.
func (n *Net) IP(rank int, args ...string) error {
	return tool("ip", append([]string{"-n", n.host(rank)}, args...)...)
}
