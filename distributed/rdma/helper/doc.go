// Package helper is verbs by proxy: a separate process makes the calls of the verbs
// library, so that a library that ends its process does not end the server. Apple's
// library does that: a process that posts to a queue pair after the Thunderbolt link is
// gone gets a SIGSEGV (ml-explore/mlx issues 4192 and 4319).
//
// Each device has its own helper. A lost link ends the helper of its device, and with it
// that device's protection domain and queue pairs; the other devices stay open.
//
//	server                                        helper of a device
//	verbs.Library ── Provider ── messages ═══════ serve ── verbs.Library ── libibverbs
//	engine (C) ── ops of the objects ══ rings ═══ loop (C) ── ops of the library's objects
//	           └─ slab ═════════════ shared memory ═══ registered
//
// Setup uses messages over a socket (message.go): a request and its reply, several at a
// time, each bounded by the limit of verbs.Library. Posting and polling use rings in
// shared memory (rm_ring.h is the contract). The objects that the server holds have their
// own function table (rm_server.c), so that the same C code posts and polls with and
// without a helper. In the helper a thread serves the rings (rm_loop.c). Registered
// memory is shared too, so that no data is copied.
//
// The thread polls while it has work, then yields, then sleeps until the server rings.
// The helper is this program, started again with Argument.
//
// The server notices the end of a helper by its socket and by wait: Lost is closed, polls
// and posts fail, Err names device and signal. The helper notices the end of the server
// by the socket (and on Linux by PR_SET_PDEATHSIG): it destroys what it has made, in
// order, and ends. The server never kills it, because the resources of Apple's driver
// that a killed process holds are lost until the Mac is powered off.
package helper
