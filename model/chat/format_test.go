package chat

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// A file's format is found by its template, its vocabulary, its architecture and its
// name, in this order.
func TestDetect(t *testing.T) {
	v3 := []string{markBOS, markUser, markAssistant}
	glm := []string{glmStart, glmObservation, markThink, markThinkEnd}
	for _, tt := range []struct {
		want         string
		architecture string
		names        string
		template     string
		has          []string
	}{
		{"v4", "deepseek4", "DeepSeek V4 Flash", "", v3},
		{"v4", "deepseek4", "", "... <｜DSML｜tool_calls> ...", v3},
		{"v4-0731", "deepseek4", "DeepSeek-V4-Flash-0731", "", v3},
		{"v4-0731", "deepseek4", "", "Reasoning Effort: Beyond maximum", v3},
		{"v4.1", "deepseek4", "DeepSeek-V4.1-Flash", "", v3},
		{"v4.1", "deepseek4", "", "", append([]string{markSystem}, v3...)},
		{"v4.1", "deepseek4", "", "<｜DSML｜ calls>", v3},
		{"v3.2", "deepseek32", "DeepSeek V3.2", "", v3},
		{"v3.2", "deepseek2", "", "<｜DSML｜function_calls>", v3},
		{"v3.1", "deepseek32", "DeepSeek V3.2 Exp", "", v3},
		{"v3.1", "deepseek2", "DeepSeek V3.1 Terminus", "", v3},
		{"v3.1", "deepseek2", "", "{{'<｜Assistant｜>'}}{{'</think>'}}", v3},
		{"r1", "deepseek2", "", `{{'<｜Assistant｜><think>\n'}}{{'</think>'}}`, v3},
		{"r1", "deepseek2", "DeepSeek R1", "", v3},
		{"v3", "deepseek2", "DeepSeek V3 0324", "{{'<｜Assistant｜>'}}", v3},
		{"kimi-k2", "deepseek2", "Kimi K2 Instruct", "", []string{kimiMiddle, kimiEnd}},
		{"kimi-k2-thinking", "deepseek2", "Kimi K2 Thinking", "", []string{kimiMiddle, kimiEnd}},
		{"glm-4.7", "deepseek2", "GLM 4.7 Flash", "", glm},
		{"glm-4.7", "glm-dsa", "GLM 5", "[gMASK]<sop>{{ '<|system|>' }} <arg_key> ... clear_thinking", glm},
		{"glm-4.7", "glm-dsa", "", "", glm},
		{"glm-5.1", "glm-dsa", "GLM 5", "[gMASK]<sop> k != 'defer_loading' and k != 'strict' <|system|>", glm},
		{"glm-5.1", "glm-dsa", "GLM-5.1", "", glm},
		{"glm-5.2", "glm-dsa", "Glm 5 2 5.2 Glm", "", glm},
		{"glm-5.2", "glm-dsa", "", "[gMASK]<sop><|system|>Reasoning Effort: {{ effort }} 'defer_loading'", glm},
		{"plain", "deepseek2", "GLM-4 9B", "", []string{glmStart, glmObservation}},
		{"plain", "deepseek2", "DeepSeek V2 Lite", "{{ 'User: ' }}", []string{markBOS}},
	} {
		f, why := Detect(Evidence{Architecture: tt.architecture, Names: tt.names, Template: tt.template, Has: func(token string) bool { return slices.Contains(tt.has, token) }})
		require.Equal(t, tt.want, f.Name, "%+v", tt)
		require.NotEmpty(t, why)
	}
	_, err := Named("v9")
	require.ErrorContains(t, err, "v4.1")
}
