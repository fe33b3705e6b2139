package plan

// step says how operations from From bytes on are done, up to the length of the
// next step.
type step struct {
	From   int64
	Choice Choice
	Rails  int
}

// tabulate lists how an operation is done by its length up to most: each line where the algorithm, the directions or the rails change.
func tabulate(cfg Config, req Request, most int64) ([]step, error) {
	var steps []step
	for n := int64(Frame); n <= most; n = bucket(n+1, 8) {
		req.Bytes = n
		p, err := New(cfg, req)
		if err != nil {
			return nil, err
		}
		s := step{From: n, Choice: p.Choice, Rails: p.Rails}
		if k := len(steps); k > 0 {
			last := steps[k-1]
			if last.Choice.Algorithm == s.Choice.Algorithm && last.Choice.Directions == s.Choice.Directions && last.Rails == s.Rails {
				continue
			}
		}
		steps = append(steps, s)
	}
	return steps, nil
}
