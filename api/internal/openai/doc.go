// Package openai is the dialect of the OpenAI API: it parses chat and text completions
// into jobs of package run and renders their events as objects or as a stream of
// server-sent events.
package openai
