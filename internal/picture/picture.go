// Package picture draws charts of lines as SVG.
package picture

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"image/color"
	"maps"
	"os"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Chart is one chart of a picture. Both axes begin at 0.
type Chart struct {
	Title, X, Y string // X and Y name the axes, with their units
	Lines       []Line
}

// Line is a line through points in the order of their X.
type Line struct {
	Name   string
	Points []Point
}

// Point is a point of a line.
type Point struct{ X, Y float64 }

// Add adds a point to the line of a name, which is added if there is none.
func (c *Chart) Add(name string, p Point) {
	for i := range c.Lines {
		if l := &c.Lines[i]; l.Name == name {
			l.Points = append(l.Points, p)
			return
		}
	}
	c.Lines = append(c.Lines, Line{name, []Point{p}})
}

// The size of a chart. Charts lie side by side.
const width, height, margin = 10 * vg.Centimeter, 8 * vg.Centimeter, vg.Centimeter / 4

// colors tell lines apart, also for the colour-blind (Okabe and Ito, without yellow).
var colors = []color.RGBA{{0, 114, 178, 255}, {213, 94, 0, 255}, {0, 158, 115, 255}, {204, 121, 167, 255}, {86, 180, 233, 255}, {230, 159, 0, 255}, {0, 0, 0, 255}}

// maxTicks is the most values of X that each get a mark on the axis.
const maxTicks = 10

// Write writes the charts to a file as SVG. Charts without lines are left out.
func Write(path string, charts ...Chart) error {
	var plots []*plot.Plot
	for _, c := range charts {
		if len(c.Lines) == 0 {
			continue
		}
		p, err := c.plot()
		if err != nil {
			return fmt.Errorf("drawing %q: %w", c.Title, err)
		}
		plots = append(plots, p)
	}
	if len(plots) == 0 {
		return errors.New("there is nothing to draw")
	}
	canvas := vgsvg.New(width*vg.Length(len(plots)), height)
	page := draw.New(canvas)
	page.SetColor(color.White)
	page.Fill(page.Rectangle.Path())
	tiles := draw.Tiles{Rows: 1, Cols: len(plots), PadX: 2 * margin}
	for i, row := range plot.Align([][]*plot.Plot{plots}, tiles, draw.Crop(page, margin, -margin, margin, -margin))[0] {
		plots[i].Draw(row)
	}
	var out bytes.Buffer
	if _, err := canvas.WriteTo(&out); err != nil {
		return err
	}
	// Lengths are those of Liberation Sans, which few systems have; Arial has the same.
	text := bytes.ReplaceAll(out.Bytes(), []byte("font-family:Liberation Sans;"), []byte("font-family:Liberation Sans,Arial,sans-serif;"))
	return os.WriteFile(path, text, 0o644)
}

// plot prepares the chart.
func (c *Chart) plot() (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = c.Title, c.X, c.Y
	for _, f := range []*font.Font{&p.Title.TextStyle.Font, &p.X.Label.TextStyle.Font, &p.Y.Label.TextStyle.Font, &p.X.Tick.Label.Font, &p.Y.Tick.Label.Font, &p.Legend.TextStyle.Font} {
		f.Variant = "Sans"
	}
	p.Legend.Top, p.Legend.Left, p.Legend.Padding = true, true, margin/2
	p.Add(plotter.NewGrid())
	at := map[float64]bool{}
	for i, l := range c.Lines {
		var points plotter.XYs
		for _, x := range slices.SortedFunc(slices.Values(l.Points), func(a, b Point) int { return cmp.Compare(a.X, b.X) }) {
			points = append(points, plotter.XY(x))
			at[x.X] = true
		}
		line, marks, err := plotter.NewLinePoints(points)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", l.Name, err)
		}
		line.Color, line.Width = colors[i%len(colors)], vg.Points(1.5)
		marks.Color, marks.Shape = line.Color, draw.CircleGlyph{}
		p.Add(line, marks)
		p.Legend.Add(l.Name, line, marks)
	}
	p.X.Min, p.Y.Min = 0, 0
	p.Y.Max *= 1.4 // room for the legend
	if len(at) <= maxTicks {
		var ticks plot.ConstantTicks
		for _, x := range slices.Sorted(maps.Keys(at)) {
			ticks = append(ticks, plot.Tick{Value: x, Label: strconv.FormatFloat(x, 'g', -1, 64)})
		}
		p.X.Tick.Marker = ticks
	}
	return p, nil
}
