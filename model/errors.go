package model

import "errors"

// ErrNoMemory is what Forward's error wraps when a sequence could not grow.
// Other sequences are not affected.
var ErrNoMemory = errors.New("not enough memory")
