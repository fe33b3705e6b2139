package simulate

import (
	"fmt"

	"ringmaster/internal/picture"
	"ringmaster/internal/units"
)

// Charts returns the times of simulations by their load, a line for each number of groups
// and policy.
func Charts(reports []*Report) []picture.Chart {
	charts := []picture.Chart{
		{Title: "First token, p95", Y: "seconds"}, {Title: "Between two tokens, p99", Y: "milliseconds"}, {Title: "Answers of a group", Y: "tokens/s"}}
	values := []func(*Report) float64{
		func(r *Report) float64 { return r.FirstToken.P95 }, func(r *Report) float64 { return 1000 * r.Between.P99 },
		func(r *Report) float64 { return r.AnswerRate / float64(r.Groups) }}
	for i := range charts {
		charts[i].X = "new conversations a second, for each group"
		for _, r := range reports {
			name := fmt.Sprintf("%s, %s", units.Count(r.Groups, "group"), r.Policy)
			charts[i].Add(name, picture.Point{X: r.Rate / float64(r.Groups), Y: values[i](r)})
		}
	}
	return charts
}
