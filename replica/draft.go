package replica

import (
	"context"

	"ringmaster/model"
)

var _ model.Drafter = (*Leader)(nil)

// Draft implements model.Drafter with the model of this rank; the others take no part. It
// guesses nothing if that model has no block for multi-token prediction, and while the
// group forms.
func (l *Leader) Draft(ctx context.Context, entries []model.DraftEntry, pick model.Pick) ([][]int32, error) {
	none := make([][]int32, len(entries))
	h := l.resident
	if !h.acquireUnlessForming() {
		return none, nil
	}
	defer h.release()
	d, ok := h.rank.(model.Drafter)
	if !ok {
		return none, nil
	}
	return d.Draft(ctx, entries, pick)
}
