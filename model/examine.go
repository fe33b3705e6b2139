package model

// Piece is a part of a model that is examined at once: some experts of a layer, or, with
// Layer -1, some of the other blocks of weights. [From, To) are their numbers.
type Piece struct {
	Layer int    `json:"layer"`
	From  int    `json:"from"`
	To    int    `json:"to"`
	Seed  uint64 `json:"seed"` // of the inputs of the products
}

// Extent is what of a model can be examined.
type Extent struct {
	Layers  []int `json:"layers"`  // that have routed experts
	Experts int   `json:"experts"` // of each of them
	Blocks  int   `json:"blocks"`  // of all other weights
}

// Sum is what examining found of one matrix, or one part of it. Ranks with the same
// weights, kernels and seed have the same sums.
type Sum struct {
	Name   string `json:"name"`           // of the tensor, or ExpertOutput
	Layer  int    `json:"layer"`          // -1 for none
	Expert int    `json:"expert"`         // -1 for none
	First  int    `json:"row,omitempty"`  // of its rows
	Rows   int    `json:"rows,omitempty"` // 0: it is not divided by rows
	// Weights is the CRC-32C of the weights in this rank's memory; 0 for ExpertOutput.
	Weights uint32 `json:"weights"`
	// Result is the CRC-32C of what the rank computes with them from the seeded input, in
	// float32. It is 0 for tensors that no product reads, and for those of experts,
	// because these count together as ExpertOutput.
	Result uint32 `json:"result"`
}

// ExpertOutput is the name of the sum of what an expert computes: gate, up, SwiGLU and
// down, the term that a rank contributes to a layer.
const ExpertOutput = "expert output"

// MostPiece is the most experts or blocks of a Piece.
const MostPiece = 64
