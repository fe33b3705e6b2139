package web

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"

	"ringmaster/internal/mdtables"
)

// The parser, the highlighter and the sanitizer have no bounds of their own: 64 KiB of
// Markdown can ask for gigabytes. These bounds hold for the two parts of a text together.
// Text beyond them is shown as it is.
const (
	// maxTime bounds the time of a text. Good texts take a tenth of it.
	maxTime = time.Second
	// maxHighlighting bounds the part of it in which code gets its colours; code that is
	// not reached by then has none.
	maxHighlighting = 400 * time.Millisecond
	// maxHTML bounds the HTML, in bytes. 64 KiB of code of one-letter tokens gives 2 MiB,
	// while one long address can be the target of thousands of links.
	maxHTML = 4 << 20
	// maxEffort bounds, for each block, the marks of emphasis, links and code times the bytes
	// of the block: the parser looks for the other end of each. Marks beyond it are text.
	maxEffort = 8 << 20
	// lineEffort is what a line counts beside its bytes: the parser makes a node of it for
	// each mark of code whose other end it looks for there.
	lineEffort = 64
)

// errSlow, errLong and errDeep are why a text is shown as it is.
var (
	errSlow = fmt.Errorf("it takes more than %v to render", maxTime)
	errLong = fmt.Errorf("its HTML has more than %d bytes", maxHTML)
	errDeep = errors.New("it has too many lines in lists and quotes within each other")
)

// work is the rendering of one text.
type work struct {
	ctx       context.Context // ends with the request, or by errSlow
	colours   time.Time       // the end of maxHighlighting
	html      int             // bytes of HTML that are left
	looks     int             // of mdtables.MaxLooks, taken
	tables    *mdtables.Budget
	unmarked  string // why a part of the text is shown as it is; "": all is rendered
	lastBlock marks
}

func newWork(ctx context.Context) (*work, context.CancelFunc) {
	ctx, cancel := context.WithTimeoutCause(ctx, maxTime, errSlow)
	return &work{ctx: ctx, colours: time.Now().Add(maxHighlighting), html: maxHTML, tables: mdtables.NewBudget()}, cancel
}

// stopped is the panic that leaves the parser or the renderer, which cannot be cancelled.
type stopped struct{ cause error }

// check leaves the parser when the work has ended.
func (w *work) check() {
	if w.ctx.Err() != nil {
		panic(stopped{context.Cause(w.ctx)})
	}
}

// run calls f and returns why it was left, if it was.
func (w *work) run(f func() error) (err error) {
	defer func() {
		switch v := recover().(type) {
		case nil:
		case stopped:
			err = v.cause
		default:
			panic(v)
		}
	}()
	w.check()
	return f()
}

// asText reports whether an error is a bound of the text, which is then shown as it is.
func asText(err error) bool {
	return errors.Is(err, errSlow) || errors.Is(err, errLong) || errors.Is(err, errDeep)
}

// workKey is the key of the work in the context of the parser.
var workKey = parser.NewContextKey()

func workOf(pc parser.Context) *work { return pc.Get(workKey).(*work) }

// lines is the reader of the parser of blocks, which looks at the rest of a line once for
// each block that is open.
type lines struct {
	text.Reader
	work *work
}

// PeekLine implements text.Reader.
func (l lines) PeekLine() ([]byte, text.Segment) {
	l.work.check()
	if l.work.looks++; l.work.looks > mdtables.MaxLooks {
		panic(stopped{errDeep})
	}
	return l.Reader.PeekLine()
}

// guard keeps the parser of inlines to maxEffort and to the time.
type guard struct{}

// marks are those that guard has seen in a block.
type marks struct {
	block       ast.Node
	seen, bytes int
}

// Trigger implements parser.InlineParser: the bytes at which other parsers begin. A space
// stands for the beginning of a line, too.
func (guard) Trigger() []byte { return []byte(" [!*_~]`<&(") }

// Parse implements parser.InlineParser: it takes the rest of a line as text when there
// have been too many marks, and else leaves it to the parsers of the marks.
func (guard) Parse(parent ast.Node, block text.Reader, pc parser.Context) ast.Node {
	w := workOf(pc)
	w.check()
	rest, _ := block.PeekLine()
	if len(rest) == 0 || strings.IndexByte("[!*_~`", rest[0]) < 0 {
		return nil
	}
	m := &w.lastBlock
	if m.block != parent {
		*m = marks{block: parent}
		for _, line := range parent.Lines().Sliced(0, parent.Lines().Len()) {
			m.bytes += line.Len() + lineEffort
		}
	}
	if m.seen++; m.seen*m.bytes <= maxEffort {
		return nil
	}
	_, segment := block.PeekLine()
	block.Advance(segment.Len())
	return ast.NewTextSegment(segment)
}

// paragraphs looks at the time before a paragraph is made something else.
type paragraphs struct{}

// Transform implements parser.ParagraphTransformer.
func (paragraphs) Transform(_ *ast.Paragraph, _ text.Reader, pc parser.Context) { workOf(pc).check() }

// output takes the HTML of a step, and leaves it when there is too much or the work has
// ended: renderers ignore errors of their writers.
type output struct {
	bytes.Buffer
	work *work
	left int
}

func (w *work) output() *output { return &output{work: w, left: w.html} }

// Write implements io.Writer.
func (o *output) Write(p []byte) (int, error) {
	o.work.check()
	if o.left -= len(p); o.left < 0 {
		panic(stopped{errLong})
	}
	return o.Buffer.Write(p)
}

// WriteString implements io.StringWriter, which the sanitizer calls.
func (o *output) WriteString(s string) (int, error) { return o.Write([]byte(s)) }

// input ends what reads it with the work.
type input struct {
	io.Reader
	work *work
}

// Read implements io.Reader.
func (r input) Read(p []byte) (int, error) {
	r.work.check()
	return r.Reader.Read(p)
}
