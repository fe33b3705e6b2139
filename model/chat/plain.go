package chat

// plain is the template of DeepSeek V2 and of models without a template of their own:
// words separate the turns.
//
//	BOS SYSTEM⏎⏎User: QUESTION⏎⏎Assistant: ANSWER<｜end▁of▁sentence｜>User: ...
type plain struct{}

// segments implements template.
func (plain) segments(c *Conversation, _ string) ([]Segment, error) {
	if len(c.Functions) > 0 {
		return nil, unsupported("tools", "this model's prompts have no form for tools; leave them out")
	}
	w := &writer{}
	w.mark(markBOS)
	for i := range c.Messages {
		m := &c.Messages[i]
		switch m.Role {
		case Assistant:
			w.text("Assistant: " + m.Content)
			if i < len(c.Messages)-1 || c.Ending != Continue {
				w.mark(markEOS)
				w.branch()
			}
		case Tool:
			return nil, unsupported("messages", "this model's prompts have no form for results of tools")
		case System:
			w.text(m.Content + "\n\n")
		default:
			w.text("User: " + m.Content + "\n\n")
		}
	}
	if c.Schema != nil {
		w.text("You MUST strictly adhere to the following schema to reply:\n" + dump(c.Schema) + "\n\n")
	}
	if c.Ending == Answer {
		w.text("Assistant:")
	}
	return w.done(), nil
}
