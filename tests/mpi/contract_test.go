package mpi

import (
	"strings"
	"testing"

	"ringmaster/distributed/grouptest"
	"ringmaster/internal/testenv"
)

// TestContract runs the suite that all transports share: each group size is one
// job of mpirun, each group an epoch of the job. The first message and the
// pieces are small, so that even small parts span several.
func TestContract(t *testing.T) { contract(t) }

// TestContractOverTCP runs the suite over MPI's TCP network, because networks
// differ in what MPI sends eagerly and what it holds back until a receive is
// posted.
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
		if s.Size > 2 { // MPI waits by polling, which takes a processor per rank
			testenv.Need(t, testenv.Full, "the contract on more than two ranks")
		}
		if strings.Contains(t.Name(), "/large") {
			testenv.Need(t, testenv.Full, "the contract for more data than a kernel's buffers hold")
		}
		if s.Size > 5 {
			testenv.Need(t, testenv.Exhaustive, "the contract on more than five ranks")
		}
		return connect(t, s)
	})
}

// TestSplit runs the shared suite of Split.
func TestSplit(t *testing.T) {
	needMPI(t)
	jobs := jobs{}
	defer jobs.end(t)
	connect := jobs.connect(nil)
	grouptest.Splits(t, func(t *testing.T, s grouptest.Setup) []grouptest.Group {
		if s.Size > 3 {
			testenv.Need(t, testenv.Full, "a split of more than three ranks")
		}
		if s.Size > 5 { // with more ranks this takes minutes on few processors
			testenv.Need(t, testenv.Exhaustive, "a split of more than five ranks")
		}
		return connect(t, s)
	})
}

// TestContractOnChildren runs the shared suite on groups that were split off.
func TestContractOnChildren(t *testing.T) {
	testenv.Need(t, testenv.Exhaustive, "the contract on children of a split")
	needMPI(t)
	jobs := jobs{}
	defer jobs.end(t)
	grouptest.Run(t, grouptest.OnChildren(jobs.connect(nil)))
}

// jobs are the running jobs, by their number of ranks.
type jobs map[int]*job

func (jobs jobs) end(t *testing.T) {
	for n, j := range jobs {
		delete(jobs, n) // delete first, because a failing end leaves the test
		j.end(t)
	}
}

// connect makes groups in the job with as many ranks as the group.
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
