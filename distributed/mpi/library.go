package mpi

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"unsafe"

	"ringmaster/distributed"
)

// message is struct rm_msg of rm_mpi.h. Messages lie outside Go's heap, because
// MPI keeps their addresses while they are in flight.
type message struct {
	data    unsafe.Pointer
	request unsafe.Pointer
	count   int32 // bytes to send, or capacity to receive
	peer    int32
	tag     int32
	state   int32
	send    int32 // msgReceive, msgSend or msgSendMatched
	got     int32 // bytes received
}

// The states of a message.
const (
	msgIdle   = 0
	msgPost   = 1
	msgPosted = 2
	msgDone   = 3
)

// What a message does.
const (
	msgReceive     = 0
	msgSend        = 1
	msgSendMatched = 2 // done once the peer has begun to receive it
)

// bytes returns the first n bytes of the memory behind the message.
func (m *message) bytes(n int) []byte { return unsafe.Slice((*byte)(m.data), n) }

// messages returns n idle messages outside Go's heap.
func messages(n int) []message {
	return unsafe.Slice((*message)(allocate(n*int(unsafe.Sizeof(message{})))), n)
}

func freeMessages(m []message) { free(unsafe.Pointer(unsafe.SliceData(m))) }

// LibraryVariable is the environment variable that names the library, as for MLX.
const LibraryVariable = "MLX_MPI_LIBNAME"

// libraryNames returns the names to try if Options.Library is empty. Only Open
// MPI uses the name with a version number; the other name may belong to any MPI
// library.
func libraryNames() []string {
	if runtime.GOOS == "darwin" {
		return []string{"libmpi.40.dylib", "libmpi.dylib", "/opt/homebrew/lib/libmpi.dylib"}
	}
	return []string{"libmpi.so.40", "libmpi.so"}
}

// library is loaded once, because a process can have only one MPI.
var library struct {
	sync.Mutex
	version string // of the loaded library, "" before
	opened  bool   // MPI was started; it cannot be started a second time
}

// load loads the library of a name, or without a name the first of libraryNames
// that can be used, and returns its version. The error wraps
// distributed.ErrUnavailable and says what was found.
func load(name string) (string, error) {
	if library.version != "" {
		return library.version, nil
	}
	names := libraryNames()
	if name != "" {
		names = []string{name}
	}
	if !built {
		return "", fmt.Errorf("%w: MPI: this program was built without cgo or is static, so it cannot load a library; use an archive whose name ends in -rdma, or build it here", distributed.ErrUnavailable)
	}
	var found, missing []string
	for _, n := range names {
		version, there, err := loadLibrary(n)
		switch {
		case err == nil:
			library.version = version
			return version, nil
		case there:
			found = append(found, fmt.Sprintf("%s is %v", n, err))
		default:
			missing = append(missing, err.Error())
		}
	}
	why := strings.Join(missing, "; ")
	if len(found) > 0 {
		why = strings.Join(found, "; ") + "; only Open MPI (version 3 or later) is supported"
	}
	return "", fmt.Errorf("%w: MPI: %s. Install Open MPI (Debian: libopenmpi3, openmpi-bin) or name its library in the environment variable %s",
		distributed.ErrUnavailable, why, LibraryVariable)
}

var errAgain = errors.New("this process has already started MPI, which can be started only once")
