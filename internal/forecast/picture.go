package forecast

import (
	"fmt"

	"ringmaster/internal/picture"
	"ringmaster/parallel"
)

// Charts returns the predicted speeds by the number of hosts.
func (o *Forecaster) Charts() ([]picture.Chart, error) {
	sizes, err := o.groups("svg")
	if err != nil {
		return nil, err
	}
	var charts []picture.Chart
	for _, g := range sizes {
		for i, p := range g.all {
			if i == len(charts) {
				title := fmt.Sprintf("Decode after %d tokens, predicted", p.N)
				if p.What == "prefill" {
					title = fmt.Sprintf("Prefill of %d tokens, predicted", p.N)
				}
				charts = append(charts, picture.Chart{Title: title, X: "hosts", Y: "tokens/s"})
			}
			at := picture.Point{X: float64(g.n), Y: p.Rate}
			for _, s := range []parallel.Share{parallel.ShareExperts, parallel.ShareAll} {
				if g.n == 1 || s == g.share {
					charts[i].Add("--share "+s.String(), at)
				}
			}
		}
	}
	return charts, nil
}
