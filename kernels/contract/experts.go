package contract

import "ringmaster/kernels"

// Route checks Backend.Route. The tokens are not looked at.
func Route(a *kernels.RouteArgs) {
	const op = "Route"
	notNegative(op, "Rows", a.Rows)
	positive(op, "Experts", a.Experts)
	positive(op, "Used", a.Used)
	if a.Used > a.Experts {
		Fail(op, "%d of %d experts cannot be chosen", a.Used, a.Experts)
	}
	Len(op, "Logits", a.Logits, a.Rows, a.Experts)
	Len(op, "IDs", a.IDs, a.Rows, a.Used)
	Len(op, "Weights", a.Weights, a.Rows, a.Used)
	if a.Table != nil {
		Len(op, "Tokens", a.Tokens, a.Rows)
		if len(a.Table)%a.Used != 0 {
			Fail(op, "Table has %d numbers, not a multiple of %d", len(a.Table), a.Used)
		}
		apart(op, "IDs", a.IDs, a.Rows*a.Used, "Tokens", a.Tokens, a.Rows)
	} else if a.Bias != nil {
		Len(op, "Bias", a.Bias, a.Experts)
	}
	apart(op, "Weights", a.Weights, a.Rows*a.Used, "Logits", a.Logits, a.Rows*a.Experts)
	apart(op, "IDs", a.IDs, a.Rows*a.Used, "Logits", a.Logits, a.Rows*a.Experts)
	apart(op, "IDs", a.IDs, a.Rows*a.Used, "Weights", a.Weights, a.Rows*a.Used)
}

// ExpertMask checks Backend.ExpertMask.
func ExpertMask(weights []float32, ids []int32, n int) {
	const op = "ExpertMask"
	Len(op, "weights", weights, n)
	Len(op, "ids", ids, n)
	apart(op, "weights", weights, n, "ids", ids, n)
}

// ExpertCompact checks Backend.ExpertCompact. The ids are not looked at.
func ExpertCompact(out kernels.ExpertGroups, ids []int32, rows, used, experts, start, end int) {
	const op = "ExpertCompact"
	positive(op, "used", used)
	positive(op, "experts", experts)
	if start < 0 || end < start || end > experts {
		Fail(op, "the range [%d, %d) is not within %d experts", start, end, experts)
	}
	Len(op, "Offsets", out.Offsets, experts+1)
	Len(op, "Slots", out.Slots, rows, used)
	Len(op, "ids", ids, rows, used)
	apart(op, "Slots", out.Slots, rows*used, "ids", ids, rows*used)
	apart(op, "Offsets", out.Offsets, experts+1, "ids", ids, rows*used)
	apart(op, "Offsets", out.Offsets, experts+1, "Slots", out.Slots, rows*used)
}

func experts(op string, a *kernels.ExpertArgs) {
	notNegative(op, "Rows", a.Rows)
	positive(op, "Used", a.Used)
	positive(op, "Experts", a.Experts)
	Len(op, "Groups.Offsets", a.Groups.Offsets, a.Experts+1)
	Len(op, "Groups.Slots", a.Groups.Slots, a.Rows, a.Used)
	Len(op, "Weights", a.Weights, a.Rows, a.Used)
	if a.Start < 0 || a.End < a.Start || a.End > a.Experts {
		Fail(op, "the range [%d, %d) is not within %d experts", a.Start, a.End, a.Experts)
	}
}

func stack(op, name string, w kernels.Weight, a *kernels.ExpertArgs) {
	Weight(op, name, w)
	if w.Slices != a.Experts {
		Fail(op, "%s (weight %q) has %d matrices for %d experts", name, w.Name, w.Slices, a.Experts)
	}
}

// ExpertGateUp checks Backend.ExpertGateUp.
func ExpertGateUp(mid, x []float32, gate, up kernels.Weight, a *kernels.ExpertArgs) {
	const op = "ExpertGateUp"
	experts(op, a)
	stack(op, "gate", gate, a)
	stack(op, "up", up, a)
	if gate.Cols != up.Cols || gate.Rows != up.Rows {
		Fail(op, "gate is [%d][%d] and up [%d][%d]", gate.Rows, gate.Cols, up.Rows, up.Cols)
	}
	Len(op, "x", x, a.Rows, gate.Cols)
	Len(op, "mid", mid, a.Rows, a.Used, gate.Rows)
	apart(op, "mid", mid, a.Rows*a.Used*gate.Rows, "x", x, a.Rows*gate.Cols)
}

// ExpertDown checks Backend.ExpertDown.
func ExpertDown(out, mid []float32, down kernels.Weight, a *kernels.ExpertArgs) {
	const op = "ExpertDown"
	experts(op, a)
	stack(op, "down", down, a)
	Len(op, "mid", mid, a.Rows, a.Used, down.Cols)
	Len(op, "out", out, a.Rows, a.Used, down.Rows)
	apart(op, "out", out, a.Rows*a.Used*down.Rows, "mid", mid, a.Rows*a.Used*down.Cols)
}
