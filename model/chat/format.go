package chat

import (
	"fmt"
	"slices"
	"strings"
)

// Format describes how one family of models writes conversations. Named and Detect return
// formats; the zero value is not valid.
type Format struct {
	Name     string // as --chat-format takes it
	Title    string // of the models that speak it
	template template
	markup   markup
	thinking thinking
	effort   effortText
	markers  []string
	calls    []string // those of markers that begin calls
}

// template makes prompts.
type template interface {
	// segments returns the prompt in parts, of a conversation that was checked; effort is
	// the text of its effort.
	segments(c *Conversation, effort string) ([]Segment, error)
}

// thinking says whether a model reasons before it answers.
type thinking int

const (
	asAsked  thinking = iota // if the prompt asks for it
	never                    // it cannot
	always                   // in every answer
	byItself                 // if the model writes "<think>" itself
)

// Segments returns the prompt of a conversation in parts.
func (f *Format) Segments(c *Conversation) ([]Segment, error) {
	effort, err := f.effort(c.Effort)
	if err != nil {
		return nil, err
	}
	if err := check(c); err != nil {
		return nil, err
	}
	return f.template.segments(c, effort)
}

// Thinks reports whether the answer begins inside the reasoning, or may have one; asked
// says whether the client asked for thinking.
func (f *Format) Thinks(asked bool) bool {
	switch f.thinking {
	case never:
		return false
	case always, byItself:
		return true
	}
	return asked
}

// Markers returns the names of the control tokens that are part of an answer's text,
// because a Parser needs to see them.
func (f *Format) Markers() []string { return f.markers }

// CallMarkers returns those of Markers that begin calls.
func (f *Format) CallMarkers() []string { return f.calls }

var dsmlMarkers = []string{markThink, markThinkEnd, markDSML}

func newDSML(name, title string, effort effortText, names dsmlNames, d dsml) *Format {
	d.names = names
	if !d.v32 {
		d.tools = toolsV4(names)
	}
	return &Format{Name: name, Title: title, template: &d, markup: &dsmlMarkup{names}, effort: effort, markers: dsmlMarkers, calls: []string{markDSML}}
}

func newV3(name, title string, think thinking, t v3) *Format {
	return &Format{Name: name, Title: title, template: &t, markup: t.calls, thinking: think, effort: effortNone,
		markers: append([]string{markThink, markThinkEnd}, v3Markers...), calls: []string{markCalls, markCall}}
}

func newKimi(name, title string, think thinking, k kimi) *Format {
	return &Format{Name: name, Title: title, template: &k, markup: callsKimi, thinking: think, effort: effortNone,
		markers: []string{markThink, markThinkEnd, kimiCalls, kimiCall, kimiArguments, kimiCallEnd, kimiCallsEnd}, calls: []string{kimiCalls, kimiCall}}
}

func newGLM(name, title string, effort effortText, g glm) *Format {
	return &Format{Name: name, Title: title, template: &g, markup: glmMarkup{}, thinking: asAsked, effort: effort,
		markers: append([]string{markThink, markThinkEnd}, glmTags...), calls: []string{glmCall}}
}

// thinkMark opens an answer with reasoning, thinkEnd one without.
var thinkMark, thinkEnd = []Segment{{Text: markThink, Marker: true}}, []Segment{{Text: markThinkEnd, Marker: true}}

// Formats are all formats of this package.
var Formats = []*Format{
	newDSML("v4", "DeepSeek V4, preview of April 2026", effortPreview, namesV4, dsml{}),
	newDSML("v4-0731", "DeepSeek V4 Flash 0731", effort0731, namesV4, dsml{}),
	newDSML("v4.1", "DeepSeek V4.1", effortScale, namesV41, dsml{v41: true}),
	newDSML("v3.2", "DeepSeek V3.2", effortNone, namesV32, dsml{v32: true, tools: toolsV32}),
	newV3("v3.1", "DeepSeek V3.1, V3.1 Terminus, V3.2 Exp", asAsked, v3{calls: callsV31, offer: offerV31, answer: thinkMark, chat: thinkEnd, old: thinkEnd}),
	newV3("v3", "DeepSeek V2.5, V3", never, v3{calls: callsV3, offer: offerV3, results: [2]string{markOutputs, markOutputsEnd}}),
	newV3("r1", "DeepSeek R1", always, v3{calls: callsV3, offer: offerV3, results: [2]string{markOutputs, markOutputsEnd},
		answer: append(slices.Clone(thinkMark), Segment{Text: "\n"}), chat: append(slices.Clone(thinkMark), Segment{Text: "\n"})}),
	newKimi("kimi-k2", "Kimi K2", never, kimi{system: "You are a helpful assistant"}),
	newKimi("kimi-k2-thinking", "Kimi K2 Thinking", byItself, kimi{system: "You are Kimi, an AI assistant created by Moonshot AI.", thinks: true}),
	newGLM("glm-4.7", "GLM-4.7, GLM-4.7-Flash, GLM-5", effortNone, glm{}),
	newGLM("glm-5.1", "GLM-5.1", effortNone, glm{bare: true}),
	newGLM("glm-5.2", "GLM-5.2", effortGLM, glm{bare: true, closed: true}),
	{Name: "plain", Title: "DeepSeek V2, and unknown models", template: plain{}, thinking: never, effort: effortNone},
}

// Named returns the format with a name.
func Named(name string) (*Format, error) {
	for _, f := range Formats {
		if f.Name == name {
			return f, nil
		}
	}
	return nil, fmt.Errorf("no format has the name %q; the formats are %s", name, strings.Join(FormatNames()[1:], ", "))
}

// Evidence is what a model file says about its format.
type Evidence struct {
	Architecture string // general.architecture
	Names        string // general.name, general.version, general.basename
	Template     string // tokenizer.chat_template
	Has          func(token string) bool
}

// Detect finds the format of a model file by its own chat template, then by its
// vocabulary, its architecture and its name; why names the evidence.
func Detect(e Evidence) (f *Format, why string) {
	named := func(name string) *Format { f, _ := Named(name); return f }
	template := func(parts ...string) bool {
		for _, p := range parts {
			if !strings.Contains(e.Template, p) {
				return false
			}
		}
		return len(e.Template) > 0
	}
	names := strings.ToLower(e.Names)
	release := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(names, w) })
	}
	kimiVocabulary := e.Has(kimiMiddle) && e.Has(kimiEnd)
	glmVocabulary := e.Has(glmStart) && e.Has(glmObservation) && e.Has(markThinkEnd) // GLM-4 and older have no reasoning
	switch {
	case e.Architecture == "deepseek41": // files of ds4 have no template
		return named("v4.1"), "its architecture"
	case template("<｜DSML｜ calls>"), template(markSystem):
		return named("v4.1"), "its chat template"
	case template("Beyond maximum"):
		return named("v4-0731"), "its chat template"
	case template("<｜DSML｜tool_calls>") && e.Architecture == "deepseek4" && !release("0731"):
		return named("v4"), "its chat template"
	case template("<｜DSML｜function_calls>"):
		return named("v3.2"), "its chat template"
	case kimiVocabulary && (template(markThinkEnd) || release("thinking")):
		return named("kimi-k2-thinking"), "its vocabulary and chat template"
	case kimiVocabulary:
		return named("kimi-k2"), "its vocabulary"
	case glmVocabulary && template("Reasoning Effort"):
		return named("glm-5.2"), "its chat template"
	case glmVocabulary && template("defer_loading"):
		return named("glm-5.1"), "its chat template"
	case glmVocabulary && template(glmSystem):
		return named("glm-4.7"), "its chat template"
	case glmVocabulary && release("5.2", "5_2"):
		return named("glm-5.2"), "its vocabulary and name"
	case glmVocabulary && release("5.1", "5_1"):
		return named("glm-5.1"), "its vocabulary and name"
	case glmVocabulary:
		return named("glm-4.7"), "its vocabulary"
	case e.Architecture == "deepseek4" && (e.Has(markSystem) || release("v4.1", "v4_1")):
		return named("v4.1"), "its vocabulary or name"
	case e.Architecture == "deepseek4" && release("0731"):
		return named("v4-0731"), "its name"
	case e.Architecture == "deepseek4":
		return named("v4"), "its architecture"
	case e.Architecture == "deepseek32" && !release("exp"):
		return named("v3.2"), "its architecture"
	case template("<think>\\n") && template(markAssistant), release("r1") && e.Has(markAssistant):
		return named("r1"), "its chat template or name"
	case template(markAssistant, markThinkEnd), e.Architecture == "deepseek32", release("v3.1", "v3_1") && e.Has(markAssistant):
		return named("v3.1"), "its chat template or name"
	case e.Has(markUser) && e.Has(markAssistant):
		return named("v3"), "its vocabulary"
	}
	return named("plain"), "nothing in the file, neither chat template nor vocabulary, says more"
}
