package groupplan

import (
	"errors"

	"ringmaster/distributed/cluster"
	"ringmaster/model/arch"
	"ringmaster/parallel"
)

// What stages must save over the faster of experts and all, because of what a group in stages
// lacks: running answers are computed again from their tokens whenever a rank leaves or joins,
// and nothing drafts from the model's block or keeps conversations on disk.
const (
	// stagesGain is the part of the time of the request: what computing again costs a group that
	// changes every few minutes, and more than two measurements of one host differ by.
	stagesGain = 0.15
	// stagesSave is the seconds of it. Where a request takes no longer, a pause after a loss is
	// felt more than what stages save.
	stagesSave = 1.0
)

// WorthStages reports whether stages with which the request takes so many seconds are to be
// taken in place of what takes other seconds.
func WorthStages(stages, other float64) bool {
	return stages <= (1-stagesGain)*other && other-stages >= stagesSave
}

// errNoStages: stages are not taken for speed.
var errNoStages = errors.New("no stages")

// forSpeed plans a stage for each member, as an alternative to experts and all of this
// context. It is an error where the group would lose what it was asked for: drafts from the
// model's block, conversations on disk, prompts that leave rows out; and where it has no room.
func (o Options) forSpeed(members []cluster.Hello, context int) (Planned, error) {
	if spared, _ := o.spare(); spared.DraftFile != nil || o.Portable || o.Share.Shares.Memory {
		return Planned{}, errNoStages
	}
	whole, err := arch.Plan(o.Model, o.open(), o.Sequences)
	if err != nil {
		return Planned{}, err
	}
	if whole.Stairs || whole.Layers < len(members) {
		return Planned{}, errNoStages
	}
	o.Stages, o.Share.Auto, o.Share.Of, o.Context = Stages{Count: len(members)}, false, parallel.ShareExperts, context
	return o.inStages(members)
}

// StagesOf are the stages of a placement, without any the zero value.
func StagesOf(p parallel.Placement) Stages {
	var s Stages
	several := false
	for _, x := range p.Stages() {
		s.Count++
		s.Layers, s.Ranks = append(s.Layers, x.Layers), append(s.Ranks, x.Ranks.Len())
		several = several || x.Ranks.Len() > 1
	}
	if !several {
		s.Ranks = nil
	}
	return s
}

// choiceNames are the names of the placements that --share auto chooses among, in their order.
var choiceNames = [...]string{parallel.ShareExperts: parallel.ShareExperts.String(), parallel.ShareAll: parallel.ShareAll.String(), 2: "stages"}
