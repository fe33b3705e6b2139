// Package ollama speaks Ollama's API, which desktop programs and editors use.
//
//	field                                       treatment
//	model, messages, prompt, system, raw,       used
//	tools, format, stream, logprobs,
//	top_logprobs
//	think                                       used: true, false or an effort. Without it a model that can
//	                                            reason does, as in Ollama; true for a model that cannot is
//	                                            refused
//	options: num_predict, stop, temperature,    used; the defaults are those of the other APIs (temperature
//	top_p, top_k, min_p, seed,                  1, nothing cut off), not Ollama's. A num_predict of 0 or less
//	presence_penalty, frequency_penalty         is no limit, a negative seed is none
//	options: num_ctx, num_keep, num_batch,      ignored: the server's memory and its context are set when it
//	num_gpu, num_thread and others of the       starts
//	machine; repeat_last_n; unknown ones
//	options: repeat_penalty, typical_p          refused unless they ask for nothing. A repeat_penalty of 1.1
//	                                            counts as that, because it is Ollama's default and clients
//	                                            send it unasked
//	keep_alive, truncate, shift, unknown        ignored: the model is always loaded. A conversation that does
//	fields                                      not fit the context is a 400, and none is shortened
//	images, suffix, template, context           refused unless empty
//
// A request without messages or prompt asks Ollama to load a model; it is answered at
// once. A tool's result belongs to the call of its tool_call_id, otherwise to the next
// call of its tool_name, otherwise to the next call. Only complete calls are sent.
//
// A stream has a JSON value on each line. While no tokens come, it sends values with
// an empty text.
package ollama

// Version is the Ollama version that this API follows. Clients compare it with the oldest
// that they work with.
const Version = "0.17.4"
