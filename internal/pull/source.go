package pull

import (
	"fmt"
	"net"
	"net/url"
	"path"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"ringmaster/internal/safetext"
)

// source is a parsed reference: a repository of the hub or an address.
type source struct {
	repo, revision, quant string
	address               *url.URL
}

var (
	// repoName matches OWNER/REPO as the hub allows it.
	repoName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}$`)
	// revisionName matches a branch, tag or commit.
	revisionName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/-]{0,254}$`)
	// partName matches a part of a split set: prefix, number, count.
	partName = regexp.MustCompile(`^(.*)-(\d{5})-of-(\d{5})\.gguf$`)
)

const wanted = "want hf:OWNER/REPO[:QUANT], such as hf:unsloth/DeepSeek-V3.1-GGUF:Q4_K_M, or https://HOST/FILE.gguf"

// parse reads a reference.
func parse(ref string) (source, error) {
	if name, ok := strings.CutPrefix(ref, "hf:"); ok {
		name, quant, given := strings.Cut(name, ":")
		name, revision, pinned := strings.Cut(name, "@")
		switch {
		case !repoName.MatchString(name) || strings.Contains(name, ".."):
			return source{}, inputError("%q names no repository: %s", ref, wanted)
		case pinned && !revisionName.MatchString(revision):
			return source{}, inputError("%q: %q is not a branch, tag or commit", ref, revision)
		case given && quant == "":
			return source{}, inputError("%q ends with a colon: put the quantisation behind it or leave it out", ref)
		}
		if !pinned {
			revision = "main"
		}
		return source{repo: name, revision: revision, quant: quant}, nil
	}
	u, err := url.Parse(ref)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return source{}, inputError("%q: %s", ref, wanted)
	}
	if u.Scheme == "http" && !loopback(u) {
		return source{}, inputError("%q is not encrypted, so anyone on the way could change the file: use https", ref)
	}
	// The page of a file on the hub is next to the file itself.
	if strings.HasSuffix(strings.ToLower(u.Hostname()), "huggingface.co") {
		u.Path = strings.Replace(u.Path, "/blob/", "/resolve/", 1)
	}
	if err := checkName(path.Base(u.Path)); err != nil {
		return source{}, inputError("%q: %v", ref, err)
	}
	return source{address: u}, nil
}

// checkName refuses names of files that are not plain names of GGUF files.
func checkName(name string) error {
	if !strings.HasSuffix(name, ".gguf") || name == ".gguf" {
		return fmt.Errorf("%q is not the name of a .gguf file", name)
	}
	if len(name) > 200 || strings.HasPrefix(name, ".") || strings.ContainsFunc(name, func(r rune) bool {
		return r < ' ' || safetext.Unsafe(r) || r == utf8.RuneError || r == '/' || r == '\\' || r == ':'
	}) {
		return fmt.Errorf("%q is not a name for a file", name)
	}
	return nil
}

// parts returns the files of an address: one, or as many as its name says.
func (s source) parts() []*file {
	if s.address == nil {
		return nil
	}
	name := path.Base(s.address.Path)
	m := partName.FindStringSubmatch(name)
	if m == nil {
		return []*file{{name: name, url: s.address.String()}}
	}
	count, err := strconv.Atoi(m[3])
	if err != nil || count < 1 || count > mostParts {
		return []*file{{name: name, url: s.address.String()}}
	}
	var files []*file
	for i := range count {
		u := *s.address
		part := fmt.Sprintf("%s-%05d-of-%s.gguf", m[1], i+1, m[3])
		u.Path, u.RawPath = path.Join(path.Dir(s.address.Path), part), ""
		files = append(files, &file{name: part, url: u.String()})
	}
	return files
}

// mostParts bounds the parts of a set; the largest published ones have some dozens.
const mostParts = 1000

// loopback reports whether an address stays on this host.
func loopback(u *url.URL) bool {
	if u.Hostname() == "localhost" {
		return true
	}
	ip := net.ParseIP(u.Hostname())
	return ip != nil && ip.IsLoopback()
}

// checkEndpoint checks the hub's address and that the token is safe with it.
func (p *puller) checkEndpoint() error {
	p.Endpoint = strings.TrimRight(p.Endpoint, "/")
	u, err := url.Parse(p.Endpoint)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.RawQuery != "" {
		return inputError("HF_ENDPOINT is %q: want the address of a hub, such as %s", p.Endpoint, DefaultEndpoint)
	}
	if p.Token != "" && u.Scheme == "http" && !loopback(u) {
		return inputError("HF_ENDPOINT %s is not encrypted, so HF_TOKEN would be readable on the way: use https or unset HF_TOKEN", p.Endpoint)
	}
	if strings.ContainsFunc(p.Token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return inputError("HF_TOKEN has characters that no token has, such as a space or the end of a line: set it again")
	}
	return nil
}
