//go:build unix

package campaign

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
)

// how says what a client does once it has sent its bytes.
type how int

const (
	answer how = iota // wait for the answer: the request is complete
	half              // close the sending side and read what comes, perhaps nothing
	abort             // close with a reset
	hold              // keep the connection open and say no more
)

// attack is what one hostile client sends. bytes draws its details.
type attack struct {
	name  string
	then  how
	bytes func(r *rand.Rand) []byte
}

// endpoints are those that read a body, each with a valid one.
var endpoints = []struct{ path, body string }{
	{"/v1/chat/completions", `{"messages":[{"role":"user","content":"Hi"}],"max_tokens":2,"temperature":1,"top_p":0.5,"stop":["a"],"logit_bias":{"5":1},"stream":false,"n":1,"seed":1,"stream_options":null}`},
	{"/v1/completions", `{"prompt":"Hi","max_tokens":2,"echo":true,"logprobs":2,"best_of":1,"suffix":null}`},
	{"/tokenize", `{"text":"Hi","add_special":true,"parse_special":false}`},
	{"/detokenize", `{"tokens":[72,105]}`},
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

// post is a request with a body and correct framing.
func post(r *rand.Rand, path string, body []byte) []byte {
	return framed(r, path, fmt.Sprintf("Content-Length: %d\r\n", len(body)), body)
}

// framed is a request with the given framing.
func framed(r *rand.Rand, path, framing string, body []byte) []byte {
	key := pick(r, "Authorization: Bearer "+apiKey+"\r\n", "Authorization: Bearer "+apiKey+"\r\n", "Authorization: Bearer wrong\r\n", "")
	head := "POST " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" + key + framing + "\r\n"
	return append([]byte(head), body...)
}

// get is a request without a body.
func get(line string, headers ...string) []byte {
	return []byte(line + "\r\n" + strings.Join(headers, "") + "\r\n")
}

// fixed is the bytes of an attack without details.
func fixed(b []byte) func(*rand.Rand) []byte { return func(*rand.Rand) []byte { return b } }

// some is a valid request to a random endpoint with the given framing.
func some(framing string, body string) func(*rand.Rand) []byte {
	return func(r *rand.Rand) []byte {
		return framed(r, endpoints[r.IntN(len(endpoints))].path, framing, []byte(body))
	}
}

const host = "Host: localhost\r\n"

// framings are malformed or unusual HTTP.
var framings = []attack{
	{"length and chunked", answer, some("Content-Length: 3\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n", "0\r\n\r\n")},
	{"two lengths", answer, some("Content-Length: 3\r\nContent-Length: 4\r\n", "{}  ")},
	{"a negative length", answer, some("Content-Length: -1\r\n", "")},
	{"a length beyond int64", answer, some("Content-Length: 99999999999999999999\r\n", "")},
	{"a length that is no number", answer, some("Content-Length: 0x10\r\n", "")},
	{"a length beyond the limit", answer, some("Content-Length: 999999999\r\nConnection: close\r\n", "{")},
	{"a short body", half, some("Content-Length: 4000\r\n", "{")},
	{"a body that never comes", hold, some("Content-Length: 4000\r\n", "{")},
	{"a body cut off", abort, some("Content-Length: 4000\r\n", `{"prompt":"`)},
	{"a chunk size that is no number", half, some("Transfer-Encoding: chunked\r\n", "zz\r\n{}\r\n0\r\n\r\n")},
	{"a chunk size beyond uint64", half, some("Transfer-Encoding: chunked\r\n", "fffffffffffffffff\r\n{}\r\n")},
	{"a huge chunk", half, some("Transfer-Encoding: chunked\r\n", "7fffffffffffffff\r\n{}\r\n")},
	{"a chunk without its end", half, some("Transfer-Encoding: chunked\r\n", "2\r\n{}0\r\n\r\n")},
	{"a long chunk extension", half, some("Transfer-Encoding: chunked\r\n", "2;"+strings.Repeat("x", 9000)+"\r\n{}\r\n0\r\n\r\n")},
	{"many empty chunk extensions", half, some("Transfer-Encoding: chunked\r\n", strings.Repeat("1;a=b\r\n \r\n", 3000)+"0\r\n\r\n")},
	{"trailers without end", hold, some("Transfer-Encoding: chunked\r\n", "2\r\n{}\r\n0\r\nX: y\r\n")},
	{"an unknown transfer encoding", answer, some("Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n")},
	{"chunked twice", answer, some("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n")},
	{"a compressed body", answer, some("Content-Encoding: gzip\r\nContent-Length: 4\r\n", "\x1f\x8b\x08\x00")},
	{"a header drop by drop", hold, fixed([]byte("POST /v1/completions HTT"))},
	{"a header without end", hold, fixed([]byte("GET / HTTP/1.1\r\nHost: localhost\r\nX: "))},
	{"silence", hold, fixed(nil)},
	{"huge headers", answer, fixed(get("GET /healthz HTTP/1.1", host, "X: "+strings.Repeat("y", 80<<10)+"\r\n"))},
	{"many headers", answer, fixed(get("GET /healthz HTTP/1.1", host, strings.Repeat("X: y\r\n", 20000)))},
	{"a long path", answer, fixed(get("GET /"+strings.Repeat("a", 60<<10)+" HTTP/1.1", host))},
	{"a path with escapes", answer, fixed(get("GET /%2e%2e/%00%ff/v1 HTTP/1.1", host))},
	{"a wrong escape", answer, fixed(get("GET /%zz HTTP/1.1", host))},
	{"a whole URL", answer, fixed(get("GET http://evil.example/metrics HTTP/1.1", host))},
	{"another host", answer, fixed(get("GET /v1/models HTTP/1.1", "Host: evil.example\r\n"))},
	{"no host", answer, fixed(get("GET / HTTP/1.1"))},
	{"two hosts", answer, fixed(get("GET / HTTP/1.1", host, host))},
	{"an invalid host", answer, fixed(get("GET / HTTP/1.1", "Host: a b\r\n"))},
	{"an invalid method", answer, fixed(get("G(T / HTTP/1.1", host))},
	{"another method", answer, func(r *rand.Rand) []byte {
		return get(pick(r, "DELETE", "PUT", "TRACE", "PATCH", "BREW")+" /v1/chat/completions HTTP/1.1", host)
	}},
	{"CONNECT", answer, fixed(get("CONNECT localhost:1 HTTP/1.1", host))},
	{"OPTIONS of all", answer, fixed(get("OPTIONS * HTTP/1.1", host))},
	{"an unknown version", answer, fixed(get("GET / HTTP/9.9", host))},
	{"no version", answer, fixed([]byte("GET /\r\n\r\n"))},
	{"a header without a colon", answer, fixed(get("GET / HTTP/1.1", host, "nonsense\r\n"))},
	{"a zero byte in a header", answer, fixed(get("GET / HTTP/1.1", host, "X: a\x00b\r\n"))},
	{"a folded header", answer, fixed(get("GET /healthz HTTP/1.1", host, "X: a\r\n b\r\n", "Connection: close\r\n"))},
	{"HTTP/2 without asking", half, fixed([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"))},
	{"an upgrade", answer, fixed(get("GET /healthz HTTP/1.1", host, "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"))},
	{"TLS", half, fixed([]byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"))},
	{"noise", half, func(r *rand.Rand) []byte {
		b := make([]byte, r.IntN(5000))
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		return b
	}},
	{"an unknown expectation", answer, some("Expect: miracles\r\nContent-Length: 2\r\n", "{}")},
	{"an expectation without a body", hold, some("Expect: 100-continue\r\nContent-Length: 200\r\n", "")},
	{"many requests at once", answer, func(r *rand.Rand) []byte {
		return bytes.Repeat(get("GET "+pick(r, "/healthz", "/readyz", "/", "/nothing")+" HTTP/1.1", host), 50)
	}},
	{"a client that reads nothing", hold, func(r *rand.Rand) []byte {
		return bytes.Repeat(get("GET / HTTP/1.1", host), 1000)
	}},
	{"a client that hangs up", half, func(r *rand.Rand) []byte {
		e := endpoints[r.IntN(len(endpoints))]
		return post(r, e.path, []byte(e.body))
	}},
	{"a client that is gone", abort, func(r *rand.Rand) []byte {
		return post(r, endpoints[0].path, []byte(strings.Replace(endpoints[0].body, `"max_tokens":2`, `"max_tokens":500`, 1)))
	}},
}

// values are JSON values that belong nowhere.
var values = []string{
	"null", "true", "-1", "0", "1e999", "-1e999", "1e-999", "99999999999999999999999", "0.5", "-0", `""`, `"\ud800"`, `"\u0000"`, `"x"`,
	"[]", "{}", "[null]", `[[]]`, `{"a":1}`, "[1e9]", "[-1]", "[0.5]", `["a","b"]`, `[{"role":"user"}]`, `[{"role":1,"content":{}}]`,
	strings.Repeat("[", 500) + strings.Repeat("]", 500), "[" + strings.Repeat("0,", 50000) + "0]", `"` + strings.Repeat("a", 50000) + `"`,
	"[" + strings.Repeat(`"a",`, 5000) + `"a"]`,
}

// fields are names of members, in use or refused.
var fields = []string{"messages", "prompt", "text", "content", "tokens", "max_tokens", "max_completion_tokens", "temperature", "top_p", "top_k", "min_p",
	"n", "best_of", "stop", "stream", "stream_options", "seed", "logprobs", "top_logprobs", "logit_bias", "echo", "suffix", "tools", "response_format",
	"reasoning_effort", "thinking", "chat_template_kwargs", "presence_penalty", "frequency_penalty", "min_tokens", "ignore_eos", "user", "model", "add_special"}

// bodies are malformed or unusual JSON in correct HTTP.
var bodies = []struct {
	name  string
	bytes func(r *rand.Rand, valid string) []byte
}{
	{"a member of another type", func(r *rand.Rand, valid string) []byte {
		return []byte(valid[:len(valid)-1] + `,"` + pick(r, fields...) + `":` + pick(r, values...) + "}")
	}},
	{"only such a member", func(r *rand.Rand, _ string) []byte {
		return []byte(`{"` + pick(r, fields...) + `":` + pick(r, values...) + "}")
	}},
	{"no object", func(r *rand.Rand, _ string) []byte { return []byte(pick(r, values...)) }},
	{"deep nesting", func(r *rand.Rand, valid string) []byte {
		n := 1 + r.IntN(100000)
		return []byte(valid[:len(valid)-1] + `,"x":` + strings.Repeat(pick(r, "[", `{"a":`), n))
	}},
	{"deep nesting that is closed", func(r *rand.Rand, valid string) []byte {
		n := 1 + r.IntN(100000)
		return []byte(valid[:len(valid)-1] + `,"x":` + strings.Repeat("[", n) + strings.Repeat("]", n) + "}")
	}},
	{"a member twice", func(r *rand.Rand, valid string) []byte {
		return []byte(valid[:len(valid)-1] + "," + valid[1:])
	}},
	{"many members", func(r *rand.Rand, valid string) []byte {
		var b bytes.Buffer
		b.WriteString(valid[:len(valid)-1])
		for i := range 20000 {
			fmt.Fprintf(&b, `,"k%d":0`, i)
		}
		return append(b.Bytes(), '}')
	}},
	{"invalid UTF-8", func(r *rand.Rand, valid string) []byte {
		at := r.IntN(len(valid))
		return []byte(valid[:at] + pick(r, "\xff", "\xc0\x80", "\xed\xa0\x80", "\x00", "\ufeff") + valid[at:])
	}},
	{"cut off", func(r *rand.Rand, valid string) []byte { return []byte(valid[:r.IntN(len(valid))]) }},
	{"something after it", func(r *rand.Rand, valid string) []byte { return []byte(valid + pick(r, "{}", "x", ",", "\x00")) }},
	{"a byte changed", func(r *rand.Rand, valid string) []byte {
		b := []byte(valid)
		b[r.IntN(len(b))] = byte(r.Uint32())
		return b
	}},
	{"valid", func(_ *rand.Rand, valid string) []byte { return []byte(valid) }},
}

// draw is a random attack.
func draw(r *rand.Rand) attack {
	if r.IntN(2) == 0 {
		return framings[r.IntN(len(framings))]
	}
	e, b := endpoints[r.IntN(len(endpoints))], bodies[r.IntN(len(bodies))]
	return attack{"JSON for " + e.path + ": " + b.name, answer, func(r *rand.Rand) []byte { return post(r, e.path, b.bytes(r, e.body)) }}
}
