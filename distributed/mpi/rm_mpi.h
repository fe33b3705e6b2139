// The system's MPI library, loaded at run time. Linking needs no part of it.
//
// The binary interface is Open MPI's: handles are pointers, and the predefined
// ones are addresses of symbols. Other libraries have other handles, so they are
// rejected before another of their functions is called.
//
// Only one thread may call at a time, and the thread that called rm_mpi_init
// must call rm_mpi_finalize. All other functions have a time limit; these two
// have none, because MPI offers none.
#ifndef RM_MPI_H
#define RM_MPI_H

#include <stdint.h>

enum {
	RM_MPI_TEXT = 512, // size of a text buffer, the terminating zero included

	// Why rm_mpi_load failed.
	RM_MPI_NO_LIBRARY = 1, // dlopen failed; the text says why
	RM_MPI_FOREIGN = 2,    // not Open MPI; the text is its name and version, or the symbol that it lacks
};

// The states of a message.
enum {
	RM_MSG_IDLE = 0,   // not in use
	RM_MSG_POST = 1,   // to be started
	RM_MSG_POSTED = 2, // in flight: data belongs to MPI
	RM_MSG_DONE = 3,   // received or sent
};

// What a message does.
enum {
	RM_RECEIVE = 0,
	RM_SEND = 1,         // DONE may only mean that MPI has a copy
	RM_SEND_MATCHED = 2, // DONE once the peer has begun to receive it
};

// struct rm_msg is a message to be sent or received. It and its data must not
// move while it is POSTED; both are outside Go's heap.
struct rm_msg {
	void *data;
	void *request;
	int32_t count; // bytes to send, or capacity to receive
	int32_t peer;  // rank in the communicator; -1 receives from any rank and is replaced by the sender
	int32_t tag;
	int32_t state;
	int32_t send; // RM_RECEIVE, RM_SEND or RM_SEND_MATCHED
	int32_t got;  // bytes received
};

// What rm_mpi_progress returns.
enum {
	RM_MPI_DONE = 0,    // no message is POSTED, or (any) one became DONE
	RM_MPI_STOPPED = 1, // *stop is not 0
	RM_MPI_LATE = 2,    // the limit has passed
	RM_MPI_WATCHED = 3, // the watched message became DONE
	RM_MPI_ERROR = 4,   // an MPI function failed: see rm_mpi_text
};

// rm_mpi_load loads a library and looks up its functions. It returns 0 or the
// reason for the failure. text receives the library's version, or what is
// wrong.
int rm_mpi_load(const char *name, char text[RM_MPI_TEXT]);

// rm_mpi_text returns the error text of the last function that failed.
const char *rm_mpi_text(void);

// These return 0, or -1 after an error, which rm_mpi_text describes.

// rm_mpi_init starts MPI and returns the rank of this process in the world and
// the size of the world. Go's signal handlers are preserved.
int rm_mpi_init(int *rank, int *size);
// rm_mpi_host returns MPI's name of this host.
int rm_mpi_host(char text[RM_MPI_TEXT]);
// rm_mpi_dup starts to duplicate a communicator (NULL is the world). *made is
// valid once the request of m, which becomes POSTED, is DONE.
int rm_mpi_dup(void *comm, void **made, struct rm_msg *m);
// rm_mpi_quiet makes errors of a communicator return instead of ending the job.
int rm_mpi_quiet(void *comm);
// rm_mpi_cancel requests the cancellation of a receive that has not been
// matched.
int rm_mpi_cancel(struct rm_msg *m);
// rm_mpi_idle lets MPI make progress, without waiting.
int rm_mpi_idle(void *comm);
int rm_mpi_finalize(void);

// rm_mpi_progress starts the messages in state RM_MSG_POST and lets MPI work
// until it has a result. watch, if not NULL, is one more message, which does not
// count as one of m. The function polls *stop, which other threads write. It
// tests without pause for spin nanoseconds, then yields the processor between
// tests, and after a while naps between them; with a spin of 0 it naps at once.
// limit is in nanoseconds from now.
int rm_mpi_progress(void *comm, struct rm_msg *m, int n, struct rm_msg *watch, const int32_t *stop, int any, int64_t spin,
                    int64_t limit);

#endif
