package cost

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// Stage is what the ranks of one stage of layers do with the pieces of a prompt, or with a
// token.
type Stage struct {
	Pieces [][]Trace // [pieces][ranks of the stage]
	Head   []Trace   // [ranks] behind the last piece, with the final rows; nil except in the first stage
	Models []Model   // [ranks]
	Links  Links     // among the ranks of the stage
}

// Piece is a piece of a step between two stages.
type Piece struct {
	Bytes int  // of its rows
	Last  bool // of its step
}

// Pipeline is pieces that go through stages one behind the other. Each stage computes a piece
// while the next one computes the piece before it.
type Pipeline struct {
	Stages []Stage
	Pieces []Piece
	Final  int // bytes of the final rows, which the last stage sends to the first; 0: no rows are wanted
	// Next [stages] is the time of a message from each stage to the next, and from the last to
	// the first.
	Next []Line
	// Control is the time of a message without data, by which a rank tells rank 0 that it
	// has ended.
	Control Line
}

// errPipeline is the error of a Pipeline whose slices do not agree.
var errPipeline = errors.New("a pipeline needs two stages or more, with as many pieces each as it has sizes of them, and a link for each")

// Expect estimates the time of a pipeline. Ranks of the Estimate are those of the stages in
// order. Its Error is the greatest of any piece or message.
//
// Within a step a stage of one rank sends the piece before and receives the one behind while it
// computes; one of several ranks does so between two pieces, as all do between two steps. A
// message begins when sender and receiver have come to it.
func (p Pipeline) Expect() (Estimate, error) {
	if len(p.Stages) < 2 || len(p.Pieces) == 0 || len(p.Next) != len(p.Stages) {
		return Estimate{}, errPipeline
	}
	sum, unknown := newPipelined(p), map[string]bool{}
	took := make([][]float64, len(p.Stages)) // [stages][pieces] seconds
	for i, stage := range p.Stages {
		if len(stage.Pieces) != len(p.Pieces) {
			return Estimate{}, errPipeline
		}
		for k, traces := range stage.Pieces {
			e, err := expect(traces, stage.Models, stage.Links, false)
			if err != nil {
				return Estimate{}, fmt.Errorf("piece %d of stage %d: %w", k, i, err)
			}
			sum.add(i, e, unknown)
			took[i] = append(took[i], e.Seconds)
		}
	}
	head := Estimate{}
	if traces := p.Stages[0].Head; traces != nil {
		var err error
		if head, err = expect(traces, p.Stages[0].Models, p.Stages[0].Links, false); err != nil {
			return Estimate{}, fmt.Errorf("behind the last stage: %w", err)
		}
		sum.add(0, head, unknown)
	}
	for _, l := range p.Next {
		sum.Error = math.Max(sum.Error, l.trust())
	}
	sum.Seconds = p.seconds(took, head.Seconds)
	return sum.estimate(unknown), nil
}

// seconds is the time of the pipeline if stages take so long for each piece
// [stages][pieces], and the first one head seconds with the final rows.
func (p Pipeline) seconds(took [][]float64, head float64) float64 {
	began := make([]float64, len(p.Stages)) // the last piece
	free := make([]float64, len(p.Stages))  // for the next piece, from when on
	sent := make([]float64, len(p.Stages))  // the last piece has arrived at the next stage
	last := len(p.Stages) - 1
	for k, piece := range p.Pieces {
		first, arrived := k == 0 || p.Pieces[k-1].Last, 0.0
		for i, stage := range p.Stages {
			ready := began // when the next stage receives: while it computes the piece before
			if i < last && (first || len(p.Stages[i+1].Models) > 1) {
				ready = free
			}
			began[i] = math.Max(free[i], arrived)
			free[i] = math.Max(began[i]+took[i][k], sent[i]) // the piece before has left its buffer
			if i == last {
				break
			}
			arrived = math.Max(free[i], ready[i+1]) + p.Next[i].Seconds(float64(piece.Bytes), 0)
			if sent[i] = arrived; piece.Last || len(stage.Models) > 1 {
				free[i] = arrived // it sends before it continues
			}
		}
	}
	end := free[0]
	if p.Final > 0 {
		end = math.Max(end, free[last]+p.Next[last].Seconds(float64(p.Final), 0)) + head
	}
	for _, f := range free[1:] {
		end = math.Max(end, f+p.Control.Seconds(0, 0))
	}
	return end
}

// pipelined adds up the estimates of the pieces of a Pipeline.
type pipelined struct {
	Estimate
	first   []int   // [stages] the first rank of each
	seconds float64 // of all pieces on all stages, by which their imbalance is weighed
}

func newPipelined(p Pipeline) *pipelined {
	s := &pipelined{}
	for _, stage := range p.Stages {
		s.first = append(s.first, len(s.Compute))
		s.Compute = append(s.Compute, make([]float64, len(stage.Models))...)
	}
	s.Waiting, s.Imbalance = make([]float64, len(s.Compute)), 0
	return s
}

// add adds the estimate of a piece on a stage.
func (s *pipelined) add(stage int, e Estimate, unknown map[string]bool) {
	for r, seconds := range e.Compute {
		s.Compute[s.first[stage]+r] += seconds
	}
	s.Imbalance += e.Imbalance * e.Seconds
	s.seconds += e.Seconds
	s.Error = math.Max(s.Error, e.Error)
	for _, kind := range e.Unknown {
		unknown[kind] = true
	}
}

// estimate is the sum, with the time of the whole.
func (s *pipelined) estimate(unknown map[string]bool) Estimate {
	e := s.Estimate
	if s.seconds > 0 {
		e.Imbalance /= s.seconds
	} else {
		e.Imbalance = 1
	}
	for r, busy := range e.Compute {
		e.Waiting[r] = math.Max(e.Seconds-busy, 0)
	}
	for kind := range unknown {
		e.Unknown = append(e.Unknown, kind)
	}
	slices.Sort(e.Unknown)
	return e
}
