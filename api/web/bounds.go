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
// Markdown can take gigabytes. These bounds hold for the two parts of a text together.
// Text beyond them is shown as it is.
const (
	// maxTime bounds the time of a text. A normal text takes a tenth of it.
	maxTime = time.Second
	// maxHighlighting bounds the part of maxTime in which code gets its colours; code
	// after that has none.
	maxHighlighting = 400 * time.Millisecond
	// maxHTML bounds the HTML in bytes. 64 KiB of code of one-letter tokens gives 2 MiB,
	// but one long address can be the target of thousands of links.
	maxHTML = 4 << 20
	// maxEffort bounds the marks of emphasis, links and code in a block times the bytes
	// of the block, because the parser looks for the other end of each mark. Marks beyond
	// it are text.
	maxEffort = 8 << 20
	// lineEffort is the cost of a line in addition to its bytes, because the parser makes
	// a node of it for each code mark when it looks for the mark's other end.
	lineEffort = 64
)

// errSlow, errLong and errDeep say why a text is shown as it is.
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
	looks     int             // calls counted against mdtables.MaxLooks
	tables    *mdtables.Budget
	unmarked  string // why a part of the text is shown as it is; "": all is rendered
	lastBlock marks
}

// newWork begins a rendering that has some time for all and some for the colours of code.
func newWork(ctx context.Context, all, highlighting time.Duration) (*work, context.CancelFunc) {
	ctx, cancel := context.WithTimeoutCause(ctx, all, errSlow)
	return &work{ctx: ctx, colours: time.Now().Add(highlighting), html: maxHTML, tables: mdtables.NewBudget()}, cancel
}

// stopped is the panic value that leaves the parser or the renderer, because neither can
// be cancelled.
type stopped struct{ cause error }

// check leaves the parser if the work has ended.
func (w *work) check() {
	if w.ctx.Err() != nil {
		panic(stopped{context.Cause(w.ctx)})
	}
}

// run calls f and returns the cause if check left it.
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

// asText reports whether an error is a bound of the text; the text is then shown as it
// is.
func asText(err error) bool {
	return errors.Is(err, errSlow) || errors.Is(err, errLong) || errors.Is(err, errDeep)
}

// workKey is the key of the work in the context of the parser.
var workKey = parser.NewContextKey()

func workOf(pc parser.Context) *work { return pc.Get(workKey).(*work) }

// lines reads for the parser of blocks, which looks at the rest of a line once for each
// open block.
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

// guard holds the parser of inlines to maxEffort and to maxTime.
type guard struct{}

// marks are those that guard has seen in a block.
type marks struct {
	block       ast.Node
	seen, bytes int
}

// Trigger implements parser.InlineParser: it returns the bytes at which other parsers
// begin. A space also stands for the beginning of a line.
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

// paragraphs checks the time before a paragraph is transformed.
type paragraphs struct{}

// Transform implements parser.ParagraphTransformer.
func (paragraphs) Transform(_ *ast.Paragraph, _ text.Reader, pc parser.Context) { workOf(pc).check() }

// output receives the HTML of a step. It panics with stopped when there is too much or
// the work has ended, because renderers ignore errors of their writers.
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

// input fails the reader when the work has ended.
type input struct {
	io.Reader
	work *work
}

// Read implements io.Reader.
func (r input) Read(p []byte) (int, error) {
	r.work.check()
	return r.Reader.Read(p)
}
