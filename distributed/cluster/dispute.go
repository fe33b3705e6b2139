package cluster

import (
	"fmt"
)

// Ranks whose results differ where no majority tells which is wrong.

// unknownWhich ends the cause of an epoch that has ended so.
const unknownWhich = "; no majority of the ranks agrees, so which of them is wrong is not known"

// dispute ends the epoch because ranks computed different things, and it is not known which
// of them is wrong, or it is rank 0, which no epoch can do without. No token of that work is
// used. One bit that flipped in memory or in a message does not come back, so the next epoch
// runs the work again at once, on at least two ranks, whose results are compared. If they
// differ again, or have differed flapLosses times within flapPeriod, the cause is in a
// host: requests fail until a rank joins, or until another attempt after params.rejoinAfter.
// If rank 0 is wrong, or the policy is Fail, the group ends instead.
func (m *stateMachine) dispute(rank int, cause string) {
	again := m.disputed
	recent := m.disputes[:0]
	for _, at := range m.disputes {
		if m.now-at < flapPeriod {
			recent = append(recent, at)
		}
	}
	m.disputes = append(recent, m.now)
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
