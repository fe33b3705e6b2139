package mpi

import (
	"testing"

	"ringmaster/distributed/grouptest"
	"ringmaster/internal/testenv"
)

// TestContract runs the suite of all transports: each size of a group is one
// job of mpirun, each group an epoch of it. Messages are cut small, so that
// small ones have many.
func TestContract(t *testing.T) { contract(t) }

// TestContractOverTCP: what MPI sends at once, and what it keeps until it is
// asked for, differs from network to network.
func TestContractOverTCP(t *testing.T) {
	testenv.Need(t, testenv.Exhaustive, "the contract over MPI's own TCP")
	contract(t, "OMPI_MCA_btl=tcp,self")
}

func contract(t *testing.T, env ...string) {
	needMPI(t)
	jobs := jobs{}
	defer jobs.end(t)
	connect := jobs.connect(env)
	grouptest.Run(t, func(t *testing.T, s grouptest.Setup) []grouptest.Group {
		if s.Size > 4 { // MPI's waits take a processor for each rank
			testenv.Need(t, testenv.Full, "the contract on more than four ranks")
		}
		return connect(t, s)
	})
}

// TestSplit runs the suite of splits.
func TestSplit(t *testing.T) {
	needMPI(t)
	jobs := jobs{}
	defer jobs.end(t)
	connect := jobs.connect(nil)
	grouptest.Splits(t, func(t *testing.T, s grouptest.Setup) []grouptest.Group {
		if s.Size > 5 { // as many ranks take minutes on few processors
			testenv.Need(t, testenv.Exhaustive, "a split of more than five ranks")
		}
		return connect(t, s)
	})
}

// TestContractOnChildren runs the suite of all transports on groups that were
// split off.
func TestContractOnChildren(t *testing.T) {
	testenv.Need(t, testenv.Exhaustive, "the contract on children of a split")
	needMPI(t)
	jobs := jobs{}
	defer jobs.end(t)
	grouptest.Run(t, grouptest.OnChildren(jobs.connect(nil)))
}

// jobs are those that are running, by their number of ranks.
type jobs map[int]*job

func (jobs jobs) end(t *testing.T) {
	for n, j := range jobs {
		delete(jobs, n) // first: an end that fails leaves the test
		j.end(t)
	}
}

// connect makes groups in a job of their size.
func (jobs jobs) connect(env []string) grouptest.Connect {
	return func(t *testing.T, s grouptest.Setup) []grouptest.Group {
		for n, j := range jobs {
			if n > 3 && n != s.Size {
				delete(jobs, n)
				j.end(t)
			}
		}
		j := jobs[s.Size]
		if j == nil {
			j = launch(t, s.Size, env...)
			jobs[s.Size] = j
		}
		o := setup{OpTimeout: s.OpTimeout, Spin: -1, // more ranks than processors
			First: grouptest.Chunk, Piece: grouptest.Chunk, Threshold: 5 * grouptest.Chunk}
		if s.Scatter {
			o.Threshold = 1
		}
		if s.Whole {
			o.Threshold = -1
		}
		return j.connect(t, o)
	}
}
