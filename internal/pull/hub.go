package pull

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"ringmaster/internal/pull/partial"
	"ringmaster/internal/safetext"
	"ringmaster/internal/units"
)

// Bounds of a hub's answers.
const (
	mostListing = 32 << 20 // bytes of one page of a listing
	mostPages   = 200
	mostShown   = 80 // bytes of a name in a message
)

// entry is a file of a repository, as the hub's API lists it.
type entry struct {
	Type string `json:"type"`
	Path string `json:"path"`
	Size int64  `json:"size"`
	LFS  *struct {
		OID  string `json:"oid"` // SHA-256
		Size int64  `json:"size"`
	} `json:"lfs"`
}

// set is one model of a repository: a file or all parts of a split one.
type set struct {
	name  string // path without the numbers of parts
	count int
	parts map[int]entry // by number, from 1
}

func (s *set) size() (n uint64) {
	for _, e := range s.parts {
		n += uint64(min(max(e.Size, 0), partial.MostBytes))
	}
	return n
}

// choose lists the repository and returns the files of the one model that the source
// names.
func (p *puller) choose(ctx context.Context, src source) ([]*file, error) {
	commit, err := p.commit(ctx, src)
	if err != nil {
		return nil, err
	}
	entries, err := p.list(ctx, src, commit)
	if err != nil {
		return nil, err
	}
	sets := group(entries)
	if len(sets) == 0 {
		return nil, inputError("%s has no GGUF file: look for a repository of the model in that format", src.repo)
	}
	chosen := matching(sets, src.quant)
	if len(chosen) != 1 {
		what := "choose one of"
		if src.quant != "" && len(chosen) == 0 {
			what = fmt.Sprintf("nothing is named %q among", src.quant)
		} else if src.quant != "" {
			what, sets = fmt.Sprintf("%q names several, choose one of", src.quant), chosen
		}
		return nil, inputError("hf:%s: %s %s; put its name behind a colon: hf:%s:NAME", src.repo, what, describe(sets), src.repo)
	}
	s := chosen[0]
	var files []*file
	for i := range s.count {
		e, ok := s.parts[i+1]
		if !ok {
			return nil, inputError("hf:%s: %s has %d of its %d parts, part %d is missing: the repository is not complete",
				src.repo, safetext.Line(s.name, mostShown), len(s.parts), s.count, i+1)
		}
		f := &file{name: path.Base(e.Path), size: e.Size, known: true}
		f.url = p.Endpoint + "/" + src.repo + "/resolve/" + url.PathEscape(commit) + "/" + escapePath(e.Path)
		if e.LFS != nil {
			f.size, f.sha256 = e.LFS.Size, strings.TrimPrefix(strings.ToLower(e.LFS.OID), "sha256:")
		}
		if !sha256Text.MatchString(f.sha256) {
			f.sha256 = ""
		}
		if f.size <= 0 {
			return nil, inputError("hf:%s: %s has %d bytes: the repository is not complete", src.repo, safetext.Line(e.Path, mostShown), f.size)
		}
		files = append(files, f)
	}
	return files, nil
}

var sha256Text = regexp.MustCompile(`^[0-9a-f]{64}$`)

func escapePath(s string) string {
	parts := strings.Split(s, "/")
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	return strings.Join(parts, "/")
}

// commit returns the commit of the revision, so that all parts are of one commit even if
// the repository changes meanwhile.
func (p *puller) commit(ctx context.Context, src source) (string, error) {
	var info struct {
		SHA string `json:"sha"`
	}
	if _, err := p.json(ctx, p.Endpoint+"/api/models/"+src.repo+"/revision/"+url.PathEscape(src.revision), &info); err != nil {
		return "", fmt.Errorf("hf:%s: %w", src.repo, err)
	}
	if !revisionName.MatchString(info.SHA) {
		return "", fmt.Errorf("%s names no commit of %s: is HF_ENDPOINT a hub?", p.Endpoint, src.repo)
	}
	return info.SHA, nil
}

// list returns all files of a commit.
func (p *puller) list(ctx context.Context, src source, commit string) ([]entry, error) {
	next := p.Endpoint + "/api/models/" + src.repo + "/tree/" + url.PathEscape(commit) + "?recursive=true"
	var all []entry
	for range mostPages {
		var page []entry
		header, err := p.json(ctx, next, &page)
		if err != nil {
			return nil, fmt.Errorf("hf:%s: %w", src.repo, err)
		}
		all = append(all, page...)
		if next, err = p.nextPage(next, header); err != nil || next == "" {
			return all, err
		}
	}
	return nil, fmt.Errorf("the list of files of %s has more than %d pages", src.repo, mostPages)
}

var nextLink = regexp.MustCompile(`<([^>]*)>\s*;\s*rel="next"`)

// nextPage returns the address of the next page, "" if there is none. It must be on the
// same host, because it gets the token.
func (p *puller) nextPage(now string, h http.Header) (string, error) {
	m := nextLink.FindStringSubmatch(h.Get("Link"))
	if m == nil {
		return "", nil
	}
	base, err := url.Parse(now)
	if err != nil {
		return "", err
	}
	u, err := base.Parse(m[1])
	if err != nil || u.Host != base.Host || u.Scheme != base.Scheme {
		return "", fmt.Errorf("the next page of the list of files is at %q, which is not on %s", safetext.Line(m[1], safetext.Evidence), base.Host)
	}
	return u.String(), nil
}

// json gets a JSON answer, with retries.
func (p *puller) json(ctx context.Context, address string, to any) (header http.Header, err error) {
	err = p.retry(ctx, func() (bool, error) {
		resp, err := p.get(ctx, address, "")
		if err != nil {
			return false, err
		}
		defer resp.Body.Close()
		if err := p.status(resp, http.StatusOK); err != nil {
			return false, err
		}
		body := p.watched(resp)
		defer body.Close()
		text, err := io.ReadAll(io.LimitReader(body, mostListing+1))
		if err != nil {
			return false, err
		}
		if len(text) > mostListing {
			return false, final(fmt.Errorf("%s answers with more than %s", safetext.Line(address, safetext.Evidence), units.Bytes(mostListing)))
		}
		if err := json.Unmarshal(text, to); err != nil {
			return false, final(fmt.Errorf("%s does not answer as a hub does (%v): is HF_ENDPOINT right?", safetext.Line(address, safetext.Evidence), safetext.Error(err, safetext.Evidence)))
		}
		header = resp.Header
		return true, nil
	})
	return header, err
}

// group combines the GGUF files that are models into sets.
func group(entries []entry) []*set {
	sets := map[string]*set{}
	for _, e := range entries {
		base := path.Base(e.Path)
		// Vision projectors and importance matrices have the ending too.
		if e.Type != "file" || checkName(base) != nil || strings.HasPrefix(base, "mmproj") || strings.Contains(base, "imatrix") {
			continue
		}
		name, count, number := strings.TrimSuffix(e.Path, ".gguf"), 1, 1
		if m := partName.FindStringSubmatch(e.Path); m != nil {
			n, err := strconv.Atoi(m[2])
			of, err2 := strconv.Atoi(m[3])
			if err == nil && err2 == nil && n >= 1 && n <= of && of <= mostParts {
				name, number, count = m[1], n, of
			}
		}
		key := fmt.Sprintf("%s\x00%d", name, count)
		if sets[key] == nil {
			sets[key] = &set{name: name, count: count, parts: map[int]entry{}}
		}
		sets[key].parts[number] = e
	}
	return slices.SortedFunc(maps.Values(sets), func(a, b *set) int {
		return cmp.Or(cmp.Compare(a.size(), b.size()), cmp.Compare(a.name, b.name))
	})
}

// matching returns the sets that quant names: by their path, or by a part of the name
// between hyphens, dots and slashes, ignoring case. "": all.
func matching(sets []*set, quant string) []*set {
	var found []*set
	wanted := strings.ToLower(strings.TrimSuffix(quant, ".gguf"))
	if m := partName.FindStringSubmatch(quant); m != nil {
		wanted = strings.ToLower(m[1])
	}
	for _, s := range sets {
		name := strings.ToLower(s.name)
		if name == wanted {
			return []*set{s}
		}
		if quant == "" || hasWord(name, wanted) {
			found = append(found, s)
		}
	}
	return found
}

// hasWord reports whether word occurs in name between separators or its ends.
func hasWord(name, word string) bool {
	separator := func(b byte) bool { return b == '-' || b == '.' || b == '/' }
	for i := 0; ; {
		at := strings.Index(name[i:], word)
		if at < 0 {
			return false
		}
		begin, end := i+at, i+at+len(word)
		if (begin == 0 || separator(name[begin-1])) && (end == len(name) || separator(name[end])) {
			return true
		}
		i = begin + 1
	}
}

// describe lists sets for a message, at most some dozens.
func describe(sets []*set) string {
	const most = 40
	var names []string
	for _, s := range sets[:min(len(sets), most)] {
		names = append(names, fmt.Sprintf("%s (%s)", safetext.Line(s.name, mostShown), units.Bytes(s.size())))
	}
	if len(sets) > most {
		names = append(names, fmt.Sprintf("%d more", len(sets)-most))
	}
	return strings.Join(names, ", ")
}
