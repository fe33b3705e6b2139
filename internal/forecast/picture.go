package forecast

import (
	"fmt"

	"ringmaster/internal/picture"
	"ringmaster/parallel"
)

// Charts returns the predicted speeds by the number of hosts.
func (o *Forecaster) Charts() ([]picture.Chart, error) {
	var charts []picture.Chart
	err := o.groups("svg", func(n int, share parallel.Share, all []Prediction) {
		for i, p := range all {
			if i == len(charts) {
				title := fmt.Sprintf("Decode after %d tokens, predicted", p.N)
				if p.What == "prefill" {
					title = fmt.Sprintf("Prefill of %d tokens, predicted", p.N)
				}
				charts = append(charts, picture.Chart{Title: title, X: "hosts", Y: "tokens/s"})
			}
			at := picture.Point{X: float64(n), Y: p.Rate}
			for _, s := range []parallel.Share{parallel.ShareExperts, parallel.ShareAll} {
				if n == 1 || s == share {
					charts[i].Add("--share "+s.String(), at)
				}
			}
		}
	})
	return charts, err
}
