package distributed

// Children is how many groups that were split off are not closed.
func (g *Group) Children() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.children)
}

// GroupID, ChildID and ChildToken name groups.
var (
	GroupID    = groupID
	ChildID    = childID
	ChildToken = childToken
)

// Child is the link of a member of a child.
func (l *Link) Child(id uint64, rank int, members []int, tell func(peer int, cause error)) Link {
	return l.child(id, rank, members, tell)
}

// SkipSplit counts a split that never was, as a rank does that is out of step.
func (g *Group) SkipSplit() { g.splits++ }
