package distributed

// Children returns how many groups split off g are still open.
func (g *Group) Children() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.children)
}

// GroupID, ChildID and ChildToken compute the ids and tokens of groups.
var (
	GroupID    = groupID
	ChildID    = childID
	ChildToken = childToken
)

// ChildLink returns the link of one member of a child.
func (l *Link) ChildLink(id uint64, rank int, members []int, tell func(peer int, cause error)) Link {
	return l.child(id, rank, members, tell)
}

// SkipSplit counts a split that did not take place, as happens on a rank that
// is out of step.
func (g *Group) SkipSplit() { g.splits++ }
