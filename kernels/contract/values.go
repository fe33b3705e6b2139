package contract

import "ringmaster/kernels"

// The checks of values that ops use as indices, for backends that compute at once. The
// arguments have passed the checks of the op.

// Rows fails if one of the numbers is not one of the n rows that op looks up.
func Rows(op string, numbers []int32, n int) {
	for i, r := range numbers {
		if r < 0 || int(r) >= n {
			Fail(op, "row number %d (element %d) is not one of the %d rows", r, i, n)
		}
	}
}

// Table fails if a token is not a row of a.Table, or names an expert that does
// not exist.
func Table(a *kernels.RouteArgs) {
	const op = "Route"
	if a.Table == nil {
		return
	}
	have := len(a.Table) / a.Used
	for t, token := range a.Tokens[:a.Rows] {
		if token < 0 || int(token) >= have {
			Fail(op, "token %d of row %d is not a row of the table [%d]", token, t, have)
		}
		for _, e := range a.Table[int(token)*a.Used : (int(token)+1)*a.Used] {
			if e < 0 || int(e) >= a.Experts {
				Fail(op, "the table gives token %d expert %d of %d", token, e, a.Experts)
			}
		}
	}
}

// Selected fails if a number in a.Selected, before the first negative one of its row, is
// not an entry of a.Compressed, or if a token sees no row.
func Selected(a *kernels.AttendArgs) {
	if a.Ratio == 0 || a.Selected == nil {
		return
	}
	have := len(a.Compressed) / a.HeadDim
	for t := range a.Rows {
		for i, e := range a.Selected[t*a.TopK : (t+1)*a.TopK] {
			if e < 0 && i == 0 && a.RingRows == 0 {
				Fail("Attend", "Selected names no entry for row %d, which has no raw rows", t)
			}
			if e < 0 {
				break
			}
			if int(e) >= have {
				Fail("Attend", "Selected names entry %d of %d", e, have)
			}
		}
	}
}

// Groups fails if a.Groups does not list slots of the call, grouped by expert.
func Groups(op string, a *kernels.ExpertArgs) {
	slots, offsets := a.Rows*a.Used, a.Groups.Offsets
	if offsets[0] != 0 {
		Fail(op, "Groups.Offsets begin with %d", offsets[0])
	}
	for e := range a.Experts {
		if offsets[e] > offsets[e+1] {
			Fail(op, "Groups.Offsets descend at expert %d", e)
		}
	}
	count := int(offsets[a.Experts])
	if count > slots {
		Fail(op, "Groups hold %d slots of %d", count, slots)
	}
	for i, s := range a.Groups.Slots[:count] {
		if s < 0 || int(s) >= slots {
			Fail(op, "Groups.Slots[%d] is %d of %d", i, s, slots)
		}
	}
}
