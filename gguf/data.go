package gguf

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"unsafe"
)

// DataReader reads the bytes of a tensor.
type DataReader interface {
	io.ReaderAt
	io.Closer
}

// OpenData opens the bytes of a tensor as a file of their own. A read of it fails with an
// error and can be abandoned, where an access to Tensor.Data would raise SIGBUS or block a
// thread of the program; it also leaves no page in the mapping. The caller closes it.
func (f *File) OpenData(t Tensor) (DataReader, error) {
	part := &f.parts[t.Part]
	if !part.file {
		return inMemory{bytes.NewReader(t.Data)}, nil
	}
	file, err := os.Open(part.path)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && info.Size() != int64(len(part.data)) {
		err = fmt.Errorf("%s: its size changed from %d to %d bytes while it was open; restart with the new file", part.path, len(part.data), info.Size())
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	at := uintptr(unsafe.Pointer(unsafe.SliceData(t.Data))) - uintptr(unsafe.Pointer(unsafe.SliceData(part.data)))
	return onDisk{io.NewSectionReader(file, int64(at), int64(len(t.Data))), file}, nil
}

type inMemory struct{ *bytes.Reader }

// Close implements DataReader.
func (inMemory) Close() error { return nil }

type onDisk struct {
	io.ReaderAt
	file *os.File
}

// Close implements DataReader.
func (d onDisk) Close() error { return d.file.Close() }
