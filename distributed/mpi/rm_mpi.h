// The system's MPI, loaded at run time. Nothing here is needed to link.
//
// The binary interface is that of Open MPI: handles are pointers, the
// predefined ones addresses of symbols. Other libraries have other handles, so
// they are refused before any other function of theirs is called.
//
// One thread calls at a time; rm_mpi_finalize is for the one that called
// rm_mpi_init. None of the functions waits without a limit but these two, which
// have none in MPI.
#ifndef RM_MPI_H
#define RM_MPI_H

#include <stdint.h>

enum {
	RM_MPI_TEXT = 512, // room of a text, the zero at the end included

	// Why rm_mpi_load failed.
	RM_MPI_NO_LIBRARY = 1, // dlopen failed; the text says why
	RM_MPI_FOREIGN = 2,    // not Open MPI; the text is its name and version, or what it lacks
};

// State of a message.
enum {
	RM_MSG_IDLE = 0,   // not in use
	RM_MSG_POST = 1,   // is to be started
	RM_MSG_POSTED = 2, // under way: data belongs to MPI
	RM_MSG_DONE = 3,   // received or sent
};

// What a message does.
enum {
	RM_RECEIVE = 0,
	RM_SEND = 1,         // DONE may be no more than that MPI has a copy
	RM_SEND_MATCHED = 2, // DONE once the peer has begun to receive it
};

// struct rm_msg is a message that is sent or received. It and its data stay
// where they are while it is POSTED; both are outside Go's heap.
struct rm_msg {
	void *data;
	void *request;
	int32_t count; // bytes to send, or room to receive
	int32_t peer;  // rank in the communicator; -1 receives from any, and becomes the sender's
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

// rm_mpi_load loads a library and takes its functions: 0 or why not. text
// becomes its version, or what is wrong.
int rm_mpi_load(const char *name, char text[RM_MPI_TEXT]);

// rm_mpi_text says what the last function that failed said of it.
const char *rm_mpi_text(void);

// These return 0, or -1 with a text.

// rm_mpi_init starts MPI and gives the rank of this process in the world, and
// the size of that. Go's signal handlers are kept.
int rm_mpi_init(int *rank, int *size);
// rm_mpi_host is the name of this machine.
int rm_mpi_host(char text[RM_MPI_TEXT]);
// rm_mpi_dup starts the making of a communicator like comm (0 is the world).
// *made is valid once the request of m, which becomes POSTED, is DONE.
int rm_mpi_dup(void *comm, void **made, struct rm_msg *m);
// rm_mpi_quiet makes errors of a communicator return instead of ending the job.
int rm_mpi_quiet(void *comm);
// rm_mpi_cancel asks for the end of a receive that has not been matched.
int rm_mpi_cancel(struct rm_msg *m);
// rm_mpi_idle lets MPI do what it has to do, without waiting.
int rm_mpi_idle(void *comm);
int rm_mpi_finalize(void);

// rm_mpi_progress starts the messages that are to be started and lets MPI work
// until there is something to tell. watch, if not 0, is one more message that
// is not counted. It looks at *stop, written by other threads, all the time. It
// tests without pause for spin nanoseconds, then yields the processor, and
// after a while naps between tests; with a spin of 0 it naps at once. limit is
// in nanoseconds from now.
int rm_mpi_progress(void *comm, struct rm_msg *m, int n, struct rm_msg *watch, const int32_t *stop, int any, int64_t spin,
                    int64_t limit);

#endif
