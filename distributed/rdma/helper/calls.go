//go:build cgo && (linux || darwin)

package helper

import (
	"errors"
	"fmt"
	"syscall"

	"ringmaster/distributed/rdma/verbs"
)

// The calls as the helper makes them. Objects have numbers, which are never
// reused.

type servedMR struct {
	mr   *verbs.MR
	slab *verbs.Slab
}

type servedCQ struct {
	cq   *verbs.CQ
	ring mapping
}

type servedQP struct {
	qp   *verbs.QP
	ring mapping
}

// result returns the reply r, or the refusal for an error.
func result(err error, r *message) *message {
	if err == nil {
		return r
	}
	var errno syscall.Errno
	if errors.As(err, &errno) && errno != 0 {
		return &message{Errno: int(errno)}
	}
	return &message{Errno: int(syscall.EIO), Text: err.Error()}
}

// add gives an object a number.
func (s *server) add(x any) uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next++
	s.objects[s.next] = x
	return s.next
}

func (s *server) remove(id uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.objects, id)
}

// object finds an object of a type.
func object[T any](s *server, id uint32) (T, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x, ok := s.objects[id].(T)
	if !ok {
		return x, fmt.Errorf("no %T has number %d: %w", x, id, syscall.EINVAL)
	}
	return x, nil
}

// handle makes one call.
func (s *server) handle(m *message) *message {
	switch m.Call {
	case "load":
		return s.load(m)
	case "devices":
		return s.devices()
	case "open":
		return result(s.open(m), &message{Obj: [3]uint32{1}})
	}
	ctx := s.context()
	if ctx == nil {
		return &message{Errno: int(syscall.ENODEV)}
	}
	r := &message{}
	var err error
	switch m.Call {
	case "query_device":
		var a verbs.DeviceAttr
		a, err = ctx.Query()
		r.Device = &a
	case "query_port":
		var a verbs.PortAttr
		a, err = ctx.Port(m.Args[0])
		r.Port = &a
	case "query_gid":
		r.GID, r.GIDType, err = ctx.GID(m.Args[0], m.Args[1])
	case "alloc_pd":
		var pd *verbs.PD
		if pd, err = ctx.AllocPD(); err == nil {
			r.Obj[0] = s.add(pd)
		}
	case "reg_mr":
		err = s.regMR(m, r)
	case "create_cq":
		err = s.createCQ(ctx, m, r)
	case "create_qp":
		err = s.createQP(m, r)
	case "modify_qp", "query_qp":
		err = s.changeQP(m, r)
	case "close":
		s.stopLoop()
		err = ctx.Close()
	default:
		err = s.destroy(m)
	}
	return result(err, r)
}

// load loads the library.
func (s *server) load(m *message) *message {
	if m.Version != version || len(m.Names) != 1 {
		return &message{Version: version}
	}
	lib, err := verbs.Open(m.Names[0])
	if err != nil {
		return &message{Text: err.Error(), Version: version}
	}
	// Twice the server's limit, so that the server's limit expires first.
	lib.Limit = 2 * verbs.DefaultLimit
	s.mu.Lock()
	s.lib = lib
	s.mu.Unlock()
	return &message{Names: []string{lib.Path()}, Version: version}
}

func (s *server) devices() *message {
	all, err := s.lib.Devices()
	var errno syscall.Errno
	if err != nil && errors.As(err, &errno) {
		return result(err, nil)
	}
	r := &message{} // a library without a device is not an error here
	for _, d := range all {
		r.Names = append(r.Names, d.Name)
	}
	return r
}

// open opens the helper's device.
func (s *server) open(m *message) error {
	if len(m.Names) != 1 || m.file == nil || s.context() != nil {
		return syscall.EINVAL
	}
	bells, err := mapShared(m.file, int(m.Size))
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.opening = true
	s.mu.Unlock()
	d, err := s.lib.Device(m.Names[0])
	if err != nil {
		return errors.Join(err, bells.unmap())
	}
	ctx, err := d.Open()
	if err != nil {
		return errors.Join(err, bells.unmap())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ctx, s.bells = ctx, bells
	if s.loop = newLoop(bells, s.bell, m.Spin); s.loop == nil {
		return syscall.ENOMEM
	}
	return nil
}

func (s *server) regMR(m, r *message) error {
	pd, err := object[*verbs.PD](s, m.Obj[0])
	if err != nil {
		return err
	}
	if m.file == nil {
		return syscall.EINVAL
	}
	mem, err := mapShared(m.file, int(m.Size))
	if err != nil {
		return err
	}
	slab := verbs.SlabOf(mem.mem, mem.unmap)
	mr, err := pd.RegMR(slab, verbs.Access(m.Args[0]))
	if err != nil {
		return errors.Join(err, slab.Free())
	}
	if err := s.loop.addMR(mr, m.Base); err != nil {
		return errors.Join(err, mr.Close(), slab.Free())
	}
	r.Obj[0] = s.add(&servedMR{mr, slab})
	r.Keys = [2]uint32{mr.LKey(), mr.RKey()}
	r.Base = mr.Address(&mr.Bytes()[0])
	return nil
}

// ring maps the ring that came with a message.
func (m *message) ring() (mapping, error) {
	if m.file == nil || m.Size == 0 || m.Size&(m.Size-1) != 0 {
		return mapping{}, syscall.EINVAL
	}
	n, err := verbs.SlabBytes(ringBytes(m.Size))
	if err != nil {
		return mapping{}, err
	}
	return mapShared(m.file, n)
}

func (s *server) createCQ(ctx *verbs.Context, m, r *message) error {
	ring, err := m.ring()
	if err != nil {
		return err
	}
	cq, err := ctx.CreateCQ(m.Args[0])
	if err != nil {
		return errors.Join(err, ring.unmap())
	}
	if err := s.loop.addCQ(cq, ring, m.Size); err != nil {
		return errors.Join(err, cq.Destroy(), ring.unmap())
	}
	r.Obj[0] = s.add(&servedCQ{cq, ring})
	return nil
}

func (s *server) createQP(m, r *message) error {
	pd, err := object[*verbs.PD](s, m.Obj[0])
	if err != nil {
		return err
	}
	send, err := object[*servedCQ](s, m.Obj[1])
	if err != nil {
		return err
	}
	recv, err := object[*servedCQ](s, m.Obj[2])
	if err != nil {
		return err
	}
	ring, err := m.ring()
	if err != nil {
		return err
	}
	qp, err := pd.CreateQP(verbs.QPConfig{Type: verbs.QPType(m.Args[0]), SendCQ: send.cq, RecvCQ: recv.cq, Caps: m.Caps})
	if err != nil {
		return errors.Join(err, ring.unmap())
	}
	if err := s.loop.addQP(qp, send.cq, recv.cq, ring, m.Size); err != nil {
		return errors.Join(err, qp.Destroy(), ring.unmap())
	}
	r.Obj[0], r.Num = s.add(&servedQP{qp, ring}), qp.Num()
	return nil
}

// changeQP modifies or queries a queue pair after the device has received all
// earlier posts.
func (s *server) changeQP(m, r *message) error {
	q, err := object[*servedQP](s, m.Obj[0])
	if err != nil {
		return err
	}
	s.loop.settle(q.qp)
	if m.Call == "query_qp" {
		r.Caps, r.State, err = q.qp.Query()
		return err
	}
	if m.Change == nil {
		return syscall.EINVAL
	}
	return q.qp.Apply(*m.Change)
}

// destroy destroys an object. If the driver does not free it, it stays, but the
// loop no longer uses it.
func (s *server) destroy(m *message) error {
	id := m.Obj[0]
	s.mu.Lock()
	x := s.objects[id]
	s.mu.Unlock()
	var err error
	switch o := x.(type) {
	case *verbs.PD:
		err = o.Close()
	case *servedMR:
		s.loop.removeMR(o.mr)
		if err = o.mr.Close(); err == nil {
			err = o.slab.Free()
		}
	case *servedCQ:
		s.loop.removeCQ(o.cq)
		if err = o.cq.Destroy(); err == nil {
			err = o.ring.unmap()
		}
	case *servedQP:
		s.loop.removeQP(o.qp)
		if err = o.qp.Destroy(); err == nil {
			err = o.ring.unmap()
		}
	default:
		err = fmt.Errorf("%s of number %d: %w", m.Call, id, syscall.EINVAL)
	}
	if err == nil {
		s.remove(id)
	}
	return err
}
