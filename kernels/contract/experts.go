package contract

import "ringmaster/kernels"

// Route is Backend.Route. It validates neither the tokens nor Table, which lies in a
// mapping.
func Route(a *kernels.RouteArgs) Call {
	c := Call{Op: "Route"}
	c.notNegative("Rows", a.Rows)
	c.positive("Experts", a.Experts)
	c.positive("Used", a.Used)
	if a.Used > a.Experts {
		c.fail("%d of %d experts cannot be chosen", a.Used, a.Experts)
	}
	if a.Score > kernels.Softmax || a.GroupScore > kernels.GroupTopTwo {
		c.fail("Score is %d and GroupScore %d, which do not exist", a.Score, a.GroupScore)
	}
	c.notNegative("Groups", a.Groups)
	if a.Groups > 1 {
		c.routeGroups(a)
	}
	bias, tokens := 0, 0
	switch {
	case a.Table != nil:
		tokens = a.Rows
		if a.Score != kernels.SqrtSoftplus {
			c.fail("Table with Score %d, must be SqrtSoftplus", a.Score)
		}
		if len(a.Table)%a.Used != 0 {
			c.fail("Table has %d numbers, not a multiple of %d", len(a.Table), a.Used)
		}
	case a.Bias != nil:
		bias = a.Experts
	}
	in(&c, "Logits", a.Logits, a.Rows, a.Experts)
	in(&c, "Bias", a.Bias, bias)
	in(&c, "Tokens", a.Tokens, tokens)
	out(&c, "IDs", a.IDs, a.Rows, a.Used)
	out(&c, "Weights", a.Weights, a.Rows, a.Used)
	if a.Lists.Offsets != nil {
		c.lists(a.Lists, a.Rows, a.Used, a.Experts, a.Start, a.End)
	}
	c.apart()
	return c
}

// routeGroups checks the groups of a Route that has some.
func (c *Call) routeGroups(a *kernels.RouteArgs) {
	switch {
	case a.Table != nil:
		c.fail("a Table does not choose among %d Groups", a.Groups)
	case a.Experts%a.Groups != 0:
		c.fail("%d experts do not divide into %d Groups", a.Experts, a.Groups)
	case a.GroupsUsed < 1 || a.GroupsUsed > a.Groups:
		c.fail("GroupsUsed is %d of %d", a.GroupsUsed, a.Groups)
	case a.GroupsUsed*(a.Experts/a.Groups) < a.Used:
		c.fail("%d groups of %d experts have fewer than the %d Used", a.GroupsUsed, a.Experts/a.Groups, a.Used)
	}
}

// ExpertMask is Backend.ExpertMask.
func ExpertMask(weights []float32, ids []int32, n int) Call {
	c := Call{Op: "ExpertMask"}
	in(&c, "ids", ids, n)
	inOut(&c, "weights", weights, n).Moved = n
	c.apart()
	return c
}

// ExpertCompact is Backend.ExpertCompact. The ids are not validated here. Slots behind
// the last group keep what they hold.
func ExpertCompact(groups kernels.ExpertGroups, ids []int32, rows, used, experts, start, end int) Call {
	c := Call{Op: "ExpertCompact"}
	c.positive("used", used)
	c.positive("experts", experts)
	in(&c, "ids", ids, rows, used)
	c.lists(groups, rows, used, experts, start, end)
	c.apart()
	return c
}

// lists adds the groups that an op writes, those of the experts [start, end).
func (c *Call) lists(groups kernels.ExpertGroups, rows, used, experts, start, end int) {
	c.owned(start, end, experts)
	out(c, "Offsets", groups.Offsets, experts+1)
	slots := inOut(c, "Slots", groups.Slots, rows, used)
	slots.Moved = slots.Extent.End
}

// owned fails unless [start, end) is a range of experts.
func (c *Call) owned(start, end, experts int) {
	if start < 0 || end < start || end > experts {
		c.fail("the range [%d, %d) is not within %d experts", start, end, experts)
	}
}

// groups adds what both halves of the routed experts read.
func (c *Call) groups(a *kernels.ExpertArgs) {
	c.notNegative("Rows", a.Rows)
	c.positive("Used", a.Used)
	c.positive("Experts", a.Experts)
	c.owned(a.Start, a.End, a.Experts)
	in(c, "Offsets", a.Groups.Offsets, a.Experts+1)
	in(c, "Slots", a.Groups.Slots, a.Rows, a.Used)
	in(c, "Weights", a.Weights, a.Rows, a.Used)
}

// ExpertGateUp is Backend.ExpertGateUp. Rows of mid of slots outside the groups
// keep what they hold.
func ExpertGateUp(mid, x []float32, gate, up kernels.Weight, a *kernels.ExpertArgs) Call {
	c := Call{Op: "ExpertGateUp"}
	c.groups(a)
	c.stack("gate", &gate, a.Experts)
	c.stack("up", &up, a.Experts)
	if gate.Cols != up.Cols || gate.Rows != up.Rows {
		c.fail("gate is [%d][%d] and up [%d][%d]", gate.Rows, gate.Cols, up.Rows, up.Cols)
	}
	in(&c, "x", x, a.Rows, gate.Cols)
	o := inOut(&c, "mid", mid, a.Rows, a.Used, gate.Rows)
	o.Moved = o.Extent.End
	c.apart()
	return c
}

// ExpertDown is Backend.ExpertDown.
func ExpertDown(dst, mid []float32, down kernels.Weight, a *kernels.ExpertArgs) Call {
	c := Call{Op: "ExpertDown"}
	c.groups(a)
	c.stack("down", &down, a.Experts)
	in(&c, "mid", mid, a.Rows, a.Used, down.Cols)
	out(&c, "out", dst, a.Rows, a.Used, down.Rows)
	if a.Sum != nil {
		out(&c, "Sum", a.Sum, a.Rows, down.Rows)
	}
	if a.Plus != nil {
		if a.Sum == nil {
			c.fail("Plus without Sum")
		}
		in(&c, "Plus", a.Plus, a.Rows, down.Rows)
	}
	c.apart()
	return c
}
