// Package matrix reads the file that says which RDMA device of which rank leads to
// which other rank, finds out which two devices are the ends of one cable, and
// decides whether the ranks form a ring or a mesh. It also parses what the tools
// of a host report about its devices and cables, and makes a device matrix from
// that.
//
// The usual order is Parse, Matrix.Check, Pair (again while Pairing.Try is not
// empty), Matrix.Choose and Matrix.Trim.
//
// All functions are pure: they take text and values and return values.
//
// # The file
//
// JACCL_IBV_DEVICES, or MLX_IBV_DEVICES, is the path of a JSON file: N rows of N
// cells. Cell j of row i names the devices of rank i whose cables lead to rank j:
// null or [] for none, a string for one, an array for several
// (collectives specification, 3.1).
//
// # Rails
//
// A rail is a cable between two ranks. Rail k of cell [i][j] and rail k of cell
// [j][i] must be the two ends of one cable. Pair does not trust the order in the
// file, because files often list rails in other orders, and a queue pair between
// ends of different cables either cannot be connected or, worse, transfers
// nothing. It finds the cables and puts both cells in the same order.
package matrix

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"ringmaster/distributed"
)

// Matrix is the content of the file: Matrix[i][j] lists the devices of rank i
// whose cables lead to rank j, in the order of the rails.
type Matrix [][][]string

// MaxFile is the maximum length of a matrix file in bytes.
const MaxFile = 1 << 20

// Problem is an error in a matrix file, with its cure. It wraps
// distributed.ErrConfig. Row and Column are -1 if the error is not in a particular
// one.
type Problem struct {
	File        string
	Row, Column int
	What, Cure  string
}

func (p *Problem) Error() string {
	var b strings.Builder
	b.WriteString("device matrix")
	if p.File != "" {
		fmt.Fprintf(&b, " %s", p.File)
	}
	switch {
	case p.Row >= 0 && p.Column >= 0:
		fmt.Fprintf(&b, ", row %d, column %d", p.Row, p.Column)
	case p.Row >= 0:
		fmt.Fprintf(&b, ", row %d", p.Row)
	}
	fmt.Fprintf(&b, ": %s; %s", p.What, p.Cure)
	return b.String()
}

// Unwrap returns distributed.ErrConfig.
func (p *Problem) Unwrap() error { return distributed.ErrConfig }

func problem(row, column int, cure, what string, args ...any) *Problem {
	return &Problem{Row: row, Column: column, What: fmt.Sprintf(what, args...), Cure: cure}
}

// Parse reads a matrix file. It checks only the syntax: rows, cells, types; see
// Check for the rest. Errors are *Problem and name the file.
func Parse(name string, text []byte) (Matrix, error) {
	m, err := parse(text)
	var p *Problem
	if errors.As(err, &p) {
		p.File = name
	}
	return m, err
}

const cureForm = `write N rows of N cells, each null, "device" or ["device", …]`

func parse(text []byte) (Matrix, error) {
	if len(text) > MaxFile {
		return nil, problem(-1, -1, cureForm, "%d bytes, more than %d", len(text), MaxFile)
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	var rows []json.RawMessage
	if err := dec.Decode(&rows); err != nil || rows == nil {
		return nil, problem(-1, -1, cureForm, "not a JSON array of rows (%v)", reason(err))
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, problem(-1, -1, "end the file after the last ]", "text follows the array")
	}
	m := make(Matrix, len(rows))
	for i, row := range rows {
		var cells []json.RawMessage
		if err := json.Unmarshal(row, &cells); err != nil || cells == nil {
			return nil, problem(i, -1, cureForm, "not an array of cells: %.40s", row)
		}
		m[i] = make([][]string, len(cells))
		for j, cell := range cells {
			names, err := parseCell(cell)
			if err != nil {
				return nil, problem(i, j, `write null, "device" or ["device", …]`, "%v", err)
			}
			m[i][j] = names
		}
	}
	return m, nil
}

func reason(err error) string {
	if err == nil {
		return "null"
	}
	return err.Error()
}

func parseCell(cell json.RawMessage) ([]string, error) {
	var v any
	if err := json.Unmarshal(cell, &v); err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case nil:
		return nil, nil
	case string:
		return []string{v}, nil
	case []any:
		var names []string
		for _, x := range v {
			s, ok := x.(string)
			if !ok {
				return nil, fmt.Errorf("an array with elements that are not strings: %.40s", cell)
			}
			names = append(names, s)
		}
		return names, nil
	}
	return nil, fmt.Errorf("neither null, string nor array: %.40s", cell)
}

// Format returns the text of the matrix file: null, a string, or an array for
// several devices, one row on a line.
func (m Matrix) Format() []byte {
	var b bytes.Buffer
	b.WriteString("[\n")
	for i, row := range m {
		b.WriteString("  [")
		for j, names := range row {
			if j > 0 {
				b.WriteString(", ")
			}
			b.Write(formatCell(names))
		}
		b.WriteString("]")
		if i < len(m)-1 {
			b.WriteString(",")
		}
		b.WriteString("\n")
	}
	b.WriteString("]\n")
	return b.Bytes()
}

func formatCell(names []string) []byte {
	var v any
	switch len(names) {
	case 0:
	case 1:
		v = names[0]
	default:
		v = names
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // cannot fail with strings and a buffer
	return bytes.TrimSpace(b.Bytes())
}

// Clone returns a deep copy.
func (m Matrix) Clone() Matrix {
	c := make(Matrix, len(m))
	for i, row := range m {
		c[i] = make([][]string, len(row))
		for j, names := range row {
			c[i][j] = append([]string(nil), names...)
		}
	}
	return c
}

// Devices lists the devices of a rank, each once, in the order of the row.
func (m Matrix) Devices(rank int) []string {
	var all []string
	seen := map[string]bool{}
	for _, names := range m[rank] {
		for _, d := range names {
			if !seen[d] {
				seen[d] = true
				all = append(all, d)
			}
		}
	}
	return all
}
