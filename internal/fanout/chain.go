package fanout

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"ringmaster/distributed"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksumBytes follow each block on the wire: its CRC-32C, little-endian.
const checksumBytes = 4

// buffers is how many blocks a rank holds: one to receive, one to send, and one to read
// from the disk or write to it.
const buffers = 3

// send passes blocks along the chain of the ranks. At step t rank r receives block t-r+1
// from rank r-1 and sends block t-r to rank r+1, so that after the first r steps every
// rank does both at once. Meanwhile rank 0 reads the next block and the others write the
// last one.
func (r *rank) send(ctx context.Context, g *distributed.Group, blocks []block) error {
	me, size := g.Rank(), g.Size()
	if size == 1 || len(blocks) == 0 {
		return nil
	}
	longest := int64(0)
	for _, b := range blocks {
		longest = max(longest, b.length)
	}
	ring := make([][]byte, buffers) // [buffers][longest + checksumBytes]
	for i := range ring {
		ring[i] = make([]byte, longest+checksumBytes)
	}
	at := func(k int) []byte { return ring[k%buffers][:blocks[k].length+checksumBytes] }

	d := newDisk()
	defer d.stop()
	if me == 0 {
		d.start(func() error { return r.load(blocks[0], at(0)) })
	}
	for t := range len(blocks) + size - 2 {
		in, out := t-me+1, t-me
		receives := me > 0 && 0 <= in && in < len(blocks)
		sends := me < size-1 && 0 <= out && out < len(blocks)
		if me == 0 && sends {
			if err := d.wait(); err != nil { // the block to send has been read
				return err
			}
			if next := out + 1; next < len(blocks) {
				d.start(func() error { return r.load(blocks[next], at(next)) })
			}
		}
		var err error
		switch {
		case receives && sends:
			err = g.SendRecv(ctx, at(in), me-1, at(out), me+1)
		case receives:
			err = g.Recv(ctx, at(in), me-1)
		case sends:
			err = g.Send(ctx, at(out), me+1)
		}
		if err != nil {
			return err
		}
		if me == 0 && sends {
			r.report.Add(blocks[out].length)
		}
		if receives {
			if err := d.wait(); err != nil { // the previous block has been written
				return err
			}
			d.start(func() error { return r.store(blocks[in], at(in), g.Name(me-1)) })
		}
	}
	return d.wait()
}

// load reads a block and appends its checksum; p is [length + checksumBytes].
func (r *rank) load(b block, p []byte) error {
	if err := r.read(b, p[:b.length]); err != nil {
		return err
	}
	binary.LittleEndian.PutUint32(p[b.length:], crc32.Checksum(p[:b.length], castagnoli))
	return nil
}

// store checks a block that came from a rank, and writes it unless this rank has it.
func (r *rank) store(b block, p []byte, from string) error {
	if crc32.Checksum(p[:b.length], castagnoli) != binary.LittleEndian.Uint32(p[b.length:]) {
		return fmt.Errorf("block %d of %s arrived damaged from %s: check that link and the memory of both hosts, then run the same command again",
			b.at, r.files[b.file].Name, from)
	}
	if r.has(b) {
		return nil
	}
	return r.write(b, p[:b.length])
}

// disk does one operation on a file at a time beside the exchange.
type disk struct {
	work chan func() error
	done chan error
	busy bool
}

func newDisk() *disk {
	d := &disk{work: make(chan func() error), done: make(chan error, 1)}
	go func() {
		for f := range d.work {
			d.done <- f()
		}
		close(d.done)
	}()
	return d
}

func (d *disk) start(f func() error) {
	d.busy = true
	d.work <- f
}

// wait waits for the current operation; nil if there is none.
func (d *disk) wait() error {
	if !d.busy {
		return nil
	}
	d.busy = false
	return <-d.done
}

// stop ends the disk's goroutine after its current operation.
func (d *disk) stop() {
	close(d.work)
	for range d.done {
	}
}
