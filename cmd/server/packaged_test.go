package main

import (
	"encoding/json"
	"maps"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
)

// packaged is where the dashboard and the alert rules lie.
const packaged = "../../packaging/prometheus"

// withCertificates are metrics that only a server with --tls-cert has.
var withCertificates = map[string][]string{
	"ringmaster_tls_certificate_expiry_timestamp_seconds": {},
	"ringmaster_config_last_reload_successful":            {"config"},
}

var (
	sample   = regexp.MustCompile(`(?m)^([a-z_][a-z0-9_]*)(?:\{(.*)\})? \S+$`)
	label    = regexp.MustCompile(`([a-z_]+)="`)
	selector = regexp.MustCompile(`\b((?:ringmaster|process)_[a-z0-9_]+)(?:\{([^}]*)\})?`)
	matcher  = regexp.MustCompile(`([a-z_]+)\s*(?:=~|!~|!=|=)`)
	grouping = regexp.MustCompile(`\bby \(([^)]*)\)`)
)

// checkPackaged requires that /metrics of a group keeps to the conventions of
// Prometheus, and that every metric of the dashboard and the alert rules is there,
// with the labels by which they choose and group.
func checkPackaged(t *testing.T, metrics string) {
	t.Helper()
	problems, err := promlint.New(strings.NewReader(metrics)).Lint()
	require.NoError(t, err)
	for _, p := range problems {
		require.NotContains(t, p.Metric, "ringmaster_", "%s", p.Text)
	}
	labels := maps.Clone(withCertificates)
	for _, m := range sample.FindAllStringSubmatch(metrics, -1) {
		for _, l := range label.FindAllStringSubmatch(m[2], -1) {
			labels[m[1]] = append(labels[m[1]], l[1])
		}
		labels[m[1]] = append(labels[m[1]], "instance", "job") // Prometheus adds them
	}
	for _, expr := range packagedExprs(t) {
		used := selector.FindAllStringSubmatch(expr, -1)
		for _, u := range used {
			have, ok := labels[u[1]]
			require.True(t, ok, "%s is not in /metrics: %s", u[1], expr)
			var wanted []string
			for _, m := range matcher.FindAllStringSubmatch(u[2], -1) {
				wanted = append(wanted, m[1])
			}
			for _, g := range grouping.FindAllStringSubmatch(expr, -1) {
				for _, w := range strings.Split(g[1], ",") {
					wanted = append(wanted, strings.TrimSpace(w))
				}
			}
			for _, w := range wanted {
				require.True(t, w == "instance" || slices.Contains(have, w), "%s has no label %s: %s", u[1], w, expr)
			}
		}
	}
}

// packagedExprs are the expressions of the dashboard and of the alert rules.
func packagedExprs(t *testing.T) []string {
	var board struct {
		Panels []struct {
			Targets []struct{ Expr string }
		}
	}
	text := testenv.ReadFile(t, filepath.Join(packaged, "grafana.json"))
	require.NoError(t, json.Unmarshal(text, &board))
	var all []string
	for _, p := range board.Panels {
		for _, x := range p.Targets {
			all = append(all, x.Expr)
		}
	}
	require.Greater(t, len(all), 20)
	rules := testenv.ReadFile(t, filepath.Join(packaged, "alerts.yml"))
	exprs := regexp.MustCompile(`(?m)^\s*expr: (.*)$`).FindAllStringSubmatch(string(rules), -1)
	require.Greater(t, len(exprs), 5)
	for _, x := range exprs {
		all = append(all, x[1])
	}
	return all
}

// TestPromtool has Prometheus' own tool check the alert rules and run their tests.
func TestPromtool(t *testing.T) {
	testenv.Need(t, testenv.Full, "alert rules by promtool")
	tool := testenv.NeedTool(t, "promtool", "no promtool; it is in Debian's package prometheus (scripts/prepare.sh full)")
	for _, args := range [][]string{{"check", "rules", "alerts.yml"}, {"test", "rules", "alerts.test.yml"}} {
		cmd := exec.CommandContext(t.Context(), tool, args...)
		cmd.Dir = packaged
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
}
