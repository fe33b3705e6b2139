package rdmavm

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// modules are those that the fabric needs. crc32 is listed, because soft-RoCE requests it
// by the name of an algorithm and no dependency leads to it.
var modules = []string{"crc32_generic", "veth", "bridge", "rdma_rxe"}

// moduleFolders are the folders of the kernel's tree that hold these modules
// and everything they depend on.
var moduleFolders = regexp.MustCompile(`/kernel/(arch|crypto|lib|net/(ipv4|ipv6|bridge|802|llc|core)|drivers/(infiniband/(core|sw)|net))/([^/]+/)?[^/]+\.ko(\.xz)?$`)

// kernel is the folder with vmlinuz and modules/NN-NAME.ko, NN the order.
func (m *machine) kernel() string { return filepath.Join(m.cache, "kernel") }

// fetchKernel extracts the kernel and the modules from Debian's package of the
// standard kernel. Once fetched, they are kept.
func (m *machine) fetchKernel(ctx context.Context) error {
	return m.into(ctx, m.kernel(), func(dir string) error {
		out, err := apt(ctx, "", "apt-cache", "depends", "linux-image-amd64")
		if err != nil {
			return err
		}
		name := regexp.MustCompile(`Depends: (linux-image-\S+)`).FindStringSubmatch(out)
		if name == nil {
			return fmt.Errorf("linux-image-amd64 depends on no kernel: %q", out)
		}
		debs, err := download(ctx, dir, name[1])
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Join(dir, "tree", "modules"), 0o755); err != nil {
			return err
		}
		image, found, err := readKernel(ctx, debs[0])
		if err != nil {
			return fmt.Errorf("%s: %w", name[1], err)
		}
		order, err := loadOrder(found, modules)
		if err != nil {
			return fmt.Errorf("%s: %w", name[1], err)
		}
		for i, o := range order {
			at := filepath.Join(dir, "tree", "modules", fmt.Sprintf("%02d-%s.ko", i, o))
			if err := os.WriteFile(at, found[o], 0o644); err != nil {
				return err
			}
		}
		return os.WriteFile(filepath.Join(dir, "tree", "vmlinuz"), image, 0o644)
	})
}

// readKernel reads the image and the modules of moduleFolders, by name, from a
// package; the rest is not written to disk.
func readKernel(ctx context.Context, deb string) (image []byte, found map[string][]byte, err error) {
	cmd := exec.CommandContext(ctx, "dpkg-deb", "--fsys-tarfile", deb)
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	found = map[string][]byte{}
	readErr := func() error {
		for r := tar.NewReader(pipe); ; {
			h, err := r.Next()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			isImage := strings.HasPrefix(filepath.Base(h.Name), "vmlinuz-")
			if !isImage && !moduleFolders.MatchString(h.Name) {
				continue
			}
			b, err := io.ReadAll(r)
			if err != nil {
				return err
			}
			if isImage {
				image = b
				continue
			}
			file := filepath.Base(h.Name)
			if strings.HasSuffix(file, ".xz") {
				if b, err = unxz(ctx, b); err != nil {
					return err
				}
			}
			// Spelled as in the dependencies.
			name, _, _ := strings.Cut(file, ".")
			found[strings.ReplaceAll(name, "-", "_")] = b
		}
	}()
	_, _ = io.Copy(io.Discard, pipe) // the end of a tar is padded
	if err := errors.Join(readErr, cmd.Wait()); err != nil {
		return nil, nil, fmt.Errorf("%w: %s", err, complaint.Bytes())
	}
	if image == nil {
		return nil, nil, errors.New("has no vmlinuz")
	}
	return image, found, nil
}

func unxz(ctx context.Context, b []byte) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "xz", "--decompress", "--stdout")
	cmd.Stdin = bytes.NewReader(b)
	return cmd.Output()
}

// loadOrder lists the wanted modules, each after those that it depends on.
func loadOrder(found map[string][]byte, wanted []string) ([]string, error) {
	var order []string
	var add func(name string) error
	add = func(name string) error {
		if slices.Contains(order, name) {
			return nil
		}
		b, ok := found[name]
		if !ok {
			return fmt.Errorf("no module %s among the folders that are read", name)
		}
		for _, d := range dependencies(b) {
			if err := add(d); err != nil {
				return fmt.Errorf("%w (needed by %s)", err, name)
			}
		}
		order = append(order, name)
		return nil
	}
	for _, w := range wanted {
		if err := add(w); err != nil {
			return nil, err
		}
	}
	return order, nil
}

// dependencies reads the entry of a module's information that lists its
// dependencies: NUL-terminated words KEY=VALUE.
func dependencies(module []byte) []string {
	key := []byte("\x00depends=")
	at := bytes.Index(module, key)
	if at < 0 {
		return nil
	}
	value, _, _ := bytes.Cut(module[at+len(key):], []byte{0})
	return strings.FieldsFunc(strings.ReplaceAll(string(value), "-", "_"), func(r rune) bool { return r == ',' })
}
