// Package helper is verbs by proxy: a process of its own makes the calls of the
// verbs library, so that a library that ends its process takes no server with it.
// Apple's does: a process that posts to a queue pair after the Thunderbolt link
// is gone gets a SIGSEGV (ml-explore/mlx issues 4192 and 4319).
//
// There is one helper for each device. A link that is lost costs the helper of its
// device, and that device's protection domain and queue pairs; the other devices
// stay open.
//
//	server                                        helper of a device
//	verbs.Library ── Provider ── messages ═══════ serve ── verbs.Library ── libibverbs
//	engine (C) ── ops of the objects ══ rings ═══ loop (C) ── ops of the library's objects
//	           └─ slab ═════════════ shared memory ═══ registered
//
// Setting up goes by messages over a socket (message.go): a request and its reply,
// several at a time, each bounded by the limit of verbs.Library. Posting and
// polling go through rings in shared memory (rm_ring.h is the contract): the
// objects that the server holds have a function table of their own (rm_server.c),
// so that code in C that posts and polls is the same in both ways; in the helper a
// thread serves the rings (rm_loop.c). Registered memory is shared too: there is no
// further copy.
//
// The thread polls while there is work, then yields, then sleeps until the server
// rings. The helper is the program itself, started again with Argument.
//
// The end of a helper is noticed by its socket and by wait: Lost is closed, polls
// and posts fail, Err names device and signal. The end of the server is noticed by
// the socket (and on Linux by PR_SET_PDEATHSIG): the helper destroys what it has
// made, in order, and ends. It is never killed: what a killed process has of
// Apple's driver is lost until the Mac is powered off.
package helper
