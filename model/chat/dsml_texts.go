package chat

// The texts that offer functions, before and after the functions, word for word as the
// models were trained with them.

// toolsV4 returns those of DeepSeek V4 with the names of its tags; V4.1's differ only in
// these.
func toolsV4(n dsmlNames) [2]string {
	open := func(name string) string { return "<" + markDSML + name }
	end := func(name string) string { return "</" + markDSML + name + ">" }
	return [2]string{`## Tools

You have access to a set of tools to help answer the user's question. You can invoke tools by writing a "` + open(n.block) + `>" block like the following:

` + open(n.block) + `>
` + open(n.invoke) + ` name="$TOOL_NAME">
` + open(n.parameter) + ` name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE` + end(n.parameter) + `
...
` + end(n.invoke) + `
` + open(n.invoke) + ` name="$TOOL_NAME2">
...
` + end(n.invoke) + `
` + end(n.block) + `

String parameters should be specified as is and set ` + "`string=\"true\"`" + `. For all other types (numbers, booleans, arrays, objects), pass the value in JSON format and set ` + "`string=\"false\"`" + `.

If thinking_mode is enabled (triggered by ` + markThink + `), you MUST output your complete reasoning inside ` + markThink + `...` + markThinkEnd + ` BEFORE any tool calls or final response.

Otherwise, output directly after ` + markThinkEnd + ` with tool calls or final response.

### Available Tool Schemas

`, `

You MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.
`}
}

// toolsV32 has those of DeepSeek V3.2.
var toolsV32 = [2]string{`## Tools

You have access to a set of tools you can use to answer the user's question.
You can invoke functions by writing a "<｜DSML｜function_calls>" block like the following as part of your reply to the user:
<｜DSML｜function_calls>
<｜DSML｜invoke name="$FUNCTION_NAME">
<｜DSML｜parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</｜DSML｜parameter>
...
</｜DSML｜invoke>
<｜DSML｜invoke name="$FUNCTION_NAME2">
...
</｜DSML｜invoke>
</｜DSML｜function_calls>

String and scalar parameters should be specified as is without any escaping or quotes, while lists and objects should use JSON format. The "string" attribute should be set to "true" for string type parameters and "false" for other types (numbers, booleans, arrays, objects).

If the thinking_mode is enabled, then after function results you should strongly consider outputting a thinking block. Here is an example:

<｜DSML｜function_calls>
...
</｜DSML｜function_calls>

<function_results>
...
</function_results>

<think>...thinking about results</think>

Here are the functions available in JSONSchema format:
<functions>
`, `
</functions>
`}

var (
	namesV32 = dsmlNames{"function_calls", "invoke", "parameter"}
	namesV4  = dsmlNames{"tool_calls", "invoke", "parameter"}
	namesV41 = dsmlNames{" calls", " invoke", " parameter"}
)
