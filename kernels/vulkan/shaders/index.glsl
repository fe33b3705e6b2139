// Shared by the kernels of IndexTopK: see kernels.IndexArgs.

// seen is the number of entries visible to a token.
uint seen(uint row) { return min((uint(args.pos) + row + 1) / uint(args.ratio), uint(args.entries)); }
