package simulate

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// WriteReports prints a table, and what broke below it.
func WriteReports(w io.Writer, reports []*Report) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "groups\tbalance\tconv/s\trequests\twaiting p99\tfirst token p50\tp95\tp99\tbetween p50\tp99\tt/s\tcached\tbusy\tbusiest\trefused\tbroken\t")
	for _, r := range reports {
		fmt.Fprintf(t, "%d\t%s\t%.4g\t%d\t%.2f s\t%.2f s\t%.2f\t%.2f\t%.0f ms\t%.0f\t%.0f\t%.0f%%\t%.0f%%\t%.0f%%\t%s\t%s\t\n", r.Groups, r.Policy, r.Rate, r.Requests,
			r.Waiting.P99, r.FirstToken.P50, r.FirstToken.P95, r.FirstToken.P99, 1000*r.Between.P50, 1000*r.Between.P99, r.AnswerRate,
			100*r.Cached, 100*r.Utilisation, 100*r.Busiest, percent(r.Refused, r.Requests), percent(r.Broken, r.Requests))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, r := range reports {
		if _, err := fmt.Fprintf(w, "\n%d groups, %s, %.4g conversations/s: breaks first: %s\n  of %d later turns %s found their KV cache evicted, %s came to another group, %s to one that was lost meanwhile\n",
			r.Groups, r.Policy, r.Rate, r.First(), r.Later, percent(r.Evicted, r.Later), percent(r.Moved, r.Later), percent(r.Emptied, r.Later)); err != nil {
			return err
		}
		if r.Drafts > 0 {
			if _, err := fmt.Fprintf(w, "  %.2f tokens in a step of a sequence, with %.2g of its drafts right\n", r.PerStep, r.Drafts); err != nil {
				return err
			}
		}
	}
	return nil
}

// percent is n of all as a percentage.
func percent(n, all int) string {
	if n == 0 {
		return "0"
	}
	return fmt.Sprintf("%.2g%%", 100*float64(n)/float64(all))
}
