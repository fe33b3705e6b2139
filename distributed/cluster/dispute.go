package cluster

import (
	"fmt"
)

// What happens when the results of ranks differ and no majority shows which rank is wrong.

// unknownWhich is the end of the cause of such an epoch's end.
const unknownWhich = "; no majority of the ranks agrees, so which of them is wrong is not known"

// dispute ends the epoch because ranks computed different results, and either no one knows
// which of them is wrong or it is rank 0, which every epoch needs. No token of that work is
// used. The next epoch repeats the work at once, because one flipped bit in memory or in a
// message does not come back. It has at least two ranks, so that results can be compared. If
// they differ again, or have differed flapLosses times within flapPeriod, the cause is in a
// host: requests fail until a rank joins, or until another attempt after params.rejoinAfter.
// If rank 0 is wrong, or the policy is Fail, the group ends instead.
func (m *stateMachine) dispute(rank int, cause string) {
	again := m.disputed
	m.disputes = append(m.recent(m.disputes), m.now)
	lasting := again || len(m.disputes) >= flapLosses
	ends := m.onLoss == Fail || lasting && rank == 0
	if lasting && !ends {
		cause += fmt.Sprintf("; they differ repeatedly, so the next attempt is in %v, or when a rank joins", m.rejoinAfter)
	}
	m.end(rank, cause)
	if ends {
		m.stop(m.last.Error(), false)
		return
	}
	m.disputed = true
	if lasting {
		m.resume = m.now + m.rejoinAfter
	}
	m.afterLoss()
}
