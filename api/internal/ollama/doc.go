// Package ollama speaks Ollama's API, which desktop programs and editors use.
//
//	field                                       what becomes of it
//	model, messages, prompt, system, raw,       used
//	tools, format, stream, logprobs,
//	top_logprobs
//	think                                       used: true, false or an effort. Without it a model that can
//	                                            reason does, as in Ollama; true for a model that cannot is
//	                                            refused
//	options: num_predict, stop, temperature,    used; the defaults are those of the other APIs (temperature
//	top_p, top_k, min_p, seed,                  1, nothing cut off), not Ollama's. A num_predict of 0 or less
//	presence_penalty, frequency_penalty         is no limit, a negative seed is none
//	options: num_ctx, num_keep, num_batch,      pass: the server's memory and its context are set when it
//	num_gpu, num_thread and others of the       starts
//	machine; repeat_last_n; unknown ones
//	options: repeat_penalty, typical_p          refused unless they ask for nothing. A repeat_penalty of 1.1
//	                                            counts as that: it is Ollama's default, and clients send it
//	                                            unasked
//	keep_alive, truncate, shift, unknown        pass: the model is always loaded. A conversation that does
//	fields                                      not fit the context is a 400, and none is shortened
//	images, suffix, template, context           refused unless empty
//
// A request without messages or prompt, which has Ollama load a model, is answered
// at once. A tool's result belongs to the call of its tool_call_id, or else to the
// next call of its tool_name, or else to the next. Calls are sent when they are
// whole; one that is cut off is not sent.
//
// A stream has a JSON value on each line. While there is nothing to say, it has
// values with an empty text.
package ollama

// Version is the version of Ollama whose API this is. Clients compare it with the
// oldest that they work with.
const Version = "0.17.4"
