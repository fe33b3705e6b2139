package decodertest

import (
	"slices"
	"testing"

	"ringmaster/internal/testenv"
)

// shared is a test that every architecture passes.
type shared struct {
	name  string
	level testenv.Level
	run   func(Architecture, *testing.T)
}

// alone are the tests that start no ranks. Their goroutines, if any, do other work.
var alone = []shared{
	{"ChunksAndThreads", testenv.Fast, Architecture.ChunksAndThreads},
	{"StepLeavesNoTrace", testenv.Fast, Architecture.StepLeavesNoTrace},
	{"SequencesDoNotMix", testenv.Fast, Architecture.SequencesDoNotMix},
	{"Wants", testenv.Fast, Architecture.Wants},
	{"PredictionBlocks", testenv.Fast, Architecture.PredictionBlocks},
	{"DraftsFollow", testenv.Fast, Architecture.DraftsFollow},
	{"DraftsOfPrompts", testenv.Fast, Architecture.DraftsOfPrompts},
	{"DraftsAgreeWithReference", testenv.Fast, Architecture.DraftsAgreeWithReference},
	{"DraftsChangeNothing", testenv.Fast, Architecture.DraftsChangeNothing},
	{"DraftsAfterAnError", testenv.Fast, Architecture.DraftsAfterAnError},
	{"DraftsUnasked", testenv.Full, Architecture.DraftsUnasked},
	{"BlockInStages", testenv.Fast, Architecture.BlockInStages},
	{"DraftMemory", testenv.Fast, Architecture.DraftMemory},
	{"BlocksAreRefused", testenv.Fast, Architecture.BlocksAreRefused},
	{"UnknownTensors", testenv.Fast, Architecture.UnknownTensors},
	{"ReduceExact", testenv.Fast, Architecture.ReduceExact},
	{"Scales", testenv.Fast, Architecture.Scales},
	{"ScalesAreChecked", testenv.Fast, Architecture.ScalesAreChecked},
	{"StepErrors", testenv.Fast, Architecture.StepErrors},
	{"FlushesAreWhereTheyMustBe", testenv.Fast, Architecture.FlushesAreWhereTheyMustBe},
	{"ExpertsOnTheHost", testenv.Fast, Architecture.ExpertsOnTheHost},
	{"AgreesWithReference", testenv.Fast, Architecture.AgreesWithReference},
	{"NonFiniteRowsStayAlone", testenv.Fast, Architecture.NonFiniteRowsStayAlone},
	{"RestoreIsNeverLeft", testenv.Full, Architecture.RestoreIsNeverLeft},
	{"RestoreContinues", testenv.Fast, Architecture.RestoreContinues},
	{"RestoreRefuses", testenv.Full, Architecture.RestoreRefuses},
	{"Forks", testenv.Fast, Architecture.Forks},
	{"RandomForks", testenv.Fast, Architecture.RandomForks},
	{"TruncatedCommits", testenv.Fast, Architecture.TruncatedCommits},
	{"ForksAreRefused", testenv.Fast, Architecture.ForksAreRefused},
	{"CheckpointMemory", testenv.Fast, Architecture.CheckpointMemory},
	{"SnapshotsHaveCheckpoints", testenv.Fast, Architecture.SnapshotsHaveCheckpoints},
	{"SnapshotsAreShared", testenv.Fast, Architecture.SnapshotsAreShared},
	{"SequenceBytes", testenv.Fast, Architecture.SequenceBytes},
	{"SequenceBudget", testenv.Fast, Architecture.SequenceBudget},
	{"BuffersOfRanks", testenv.Fast, Architecture.BuffersOfRanks},
	{"DigestSees", testenv.Fast, Architecture.DigestSees},
	{"Prepare", testenv.Fast, Architecture.Prepare},
	{"Examines", testenv.Fast, Architecture.Examines},
	{"StatsFromOutside", testenv.Fast, Architecture.StatsFromOutside},
	{"RestoreOnRanks", testenv.Fast, Architecture.RestoreOnRanks},
	{"ExactOfRandomShapes", testenv.Full, Architecture.ExactOfRandomShapes},
	{"OverflowOnRanks", testenv.Fast, Architecture.OverflowOnRanks},
	{"GroupFlushes", testenv.Fast, Architecture.GroupFlushes},
	{"SequencesOutliveTheirGroup", testenv.Fast, Architecture.SequencesOutliveTheirGroup},
	{"RowsOverflow", testenv.Full, Architecture.RowsOverflow},
	{"PackedRows", testenv.Fast, Architecture.PackedRows},
	{"RowsOfRandomShapes", testenv.Full, Architecture.RowsOfRandomShapes},
}

// ofBlocks are the tests of a model with a block for multi-token prediction.
var ofBlocks = []string{"DraftsFollow", "DraftsOfPrompts", "DraftsAgreeWithReference", "DraftsChangeNothing", "DraftsAfterAnError", "DraftsUnasked", "BlockInStages", "DraftMemory", "BlocksAreRefused"}

// onRanks are the tests that the race detector sees: ranks at work side by side, once for
// each way in which they divide a step.
var onRanks = []shared{
	{"ExactOnAnyRanks", testenv.Fast, Architecture.ExactOnAnyRanks},
	{"SumOnAnyRanks", testenv.Fast, Architecture.SumOnAnyRanks},
	{"RowsOnAnyRanks", testenv.Fast, Architecture.RowsOnAnyRanks},
	{"ExactWithCopies", testenv.Fast, Architecture.ExactWithCopies},
	{"SumWithCopies", testenv.Fast, Architecture.SumWithCopies},
	{"Epochs", testenv.Fast, Architecture.Epochs},
	{"InStages", testenv.Fast, Architecture.InStages},
	{"WithHelper", testenv.Fast, Architecture.WithHelper},
	{"HelperIsLost", testenv.Fast, Architecture.HelperIsLost},
	{"OverTCP", testenv.Fast, Architecture.OverTCP},
}

// Alone runs the tests that every architecture passes, except those of OnRanks and those
// that need more than an Architecture, as subtests. Those named in full run only in the
// full form, because another architecture has them in every run.
func (a Architecture) Alone(t *testing.T, full ...string) { a.each(t, alone, full) }

// OnRanks is Alone for the tests of ranks that the race detector sees.
func (a Architecture) OnRanks(t *testing.T, full ...string) { a.each(t, onRanks, full) }

// Some runs the named tests of Alone and OnRanks as subtests.
func (a Architecture) Some(t *testing.T, names ...string) {
	all := slices.Concat(alone, onRanks)
	for _, name := range names {
		i := slices.IndexFunc(all, func(s shared) bool { return s.name == name })
		if i < 0 {
			t.Fatalf("no test %s", name)
		}
		a.each(t, all[i:i+1], nil)
	}
}

func (a Architecture) each(t *testing.T, tests []shared, full []string) {
	for _, name := range full {
		if !slices.ContainsFunc(tests, func(s shared) bool { return s.name == name }) {
			t.Errorf("no test %s", name)
		}
	}
	for _, s := range tests {
		if a.NoBlock && slices.Contains(ofBlocks, s.name) {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			if slices.Contains(full, s.name) {
				testenv.Need(t, testenv.Full, s.name+" of another architecture")
			}
			testenv.Need(t, s.level, s.name)
			s.run(a, t)
		})
	}
}
