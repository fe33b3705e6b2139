package gather

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"ringmaster/internal/discovery"
	"ringmaster/internal/pairing"
	"ringmaster/internal/safetext"
	"ringmaster/internal/usage"
)

// How long groups are looked for: until one was found and others have had time to answer, or
// in vain.
const (
	findOthers = 2500 * time.Millisecond
	findLimit  = 15 * time.Second
)

// clean makes a text of another host fit for a message.
func clean(text string) string { return safetext.Line(text, 512) }

// find finds the group to join.
func (j *joiner) find(ctx context.Context) (target, error) {
	if j.Host != "" {
		addr := withPort(j.Host)
		g, err := pairing.Identify(ctx, addr)
		if err == nil && !named(g, j.Group) {
			err = fmt.Errorf("%s leads the group %v, not %s", addr, g, j.Group)
		}
		return target{g, []string{addr}}, err
	}
	found := j.look(ctx)
	if ctx.Err() != nil {
		return target{}, context.Cause(ctx)
	}
	var fit []target
	for _, id := range slices.Sorted(maps.Keys(found)) {
		if named(found[id].group, j.Group) {
			fit = append(fit, found[id])
		}
	}
	switch len(fit) {
	case 0:
		return j.returning(found)
	case 1:
		return fit[0], nil
	}
	return j.chooseGroup(ctx, fit)
}

// withPort adds the port of a desk to a host without one.
func withPort(host string) string {
	if _, _, err := net.SplitHostPort(host); err == nil {
		return host
	}
	return net.JoinHostPort(strings.Trim(host, "[]"), strconv.Itoa(DefaultPort))
}

// named reports whether a group has a name or fingerprint; every group has "".
func named(g pairing.Group, name string) bool {
	return name == "" || name == g.Name || name == g.Fingerprint()
}

// look looks for groups on all networks.
func (j *joiner) look(ctx context.Context) map[string]target {
	found := map[string]target{} // by id
	ctx, cancel := context.WithTimeout(ctx, findLimit)
	defer cancel()
	discovery.Find(ctx, func(g discovery.Group) { // called by one goroutine at a time
		group := pairing.Group{ID: g.ID, Name: g.Name}
		if !group.Valid() {
			return
		}
		if len(found) == 0 {
			time.AfterFunc(findOthers, cancel)
		}
		found[g.ID] = target{group, g.Addrs}
	})
	return found
}

// returning is the group that this host has joined before, when none is announced.
func (j *joiner) returning(found map[string]target) (target, error) {
	var known []target
	for _, m := range j.joined {
		if named(m.Group, j.Group) && len(m.Desks) > 0 {
			known = append(known, target{m.Group, m.Desks})
		}
	}
	switch {
	case len(known) == 1:
		return known[0], nil
	case len(found) > 0:
		var names []string
		for _, t := range found {
			names = append(names, t.group.String())
		}
		slices.Sort(names)
		return target{}, fmt.Errorf("no group %s was found, but %s", j.Group, strings.Join(names, ", "))
	}
	return target{}, fmt.Errorf("no group was found in %v: start one with 'ringmaster up' on another host; where a network carries no multicast, or a firewall drops UDP port 5353, name that host: ringmaster join HOST", findLimit)
}

// chooseGroup picks one of several groups: the one that this host has joined before, or the
// one that a person names.
func (j *joiner) chooseGroup(ctx context.Context, fit []target) (target, error) {
	var names []string
	var before []target
	for _, t := range fit {
		names = append(names, t.group.String())
		if j.membership(t.group) != nil {
			before = append(before, t)
		}
	}
	if len(before) == 1 && j.Code == "" {
		return before[0], nil
	}
	all := strings.Join(names, ", ")
	if j.Ask == nil {
		return target{}, usage.Errorf("several groups were found: %s; say which with --group NAME or its fingerprint", all)
	}
	answer, err := j.Ask(ctx, fmt.Sprintf("Several groups were found: %s. Which one (name or fingerprint)? ", all))
	if err != nil {
		return target{}, err
	}
	var chosen []target
	for _, t := range fit {
		if answer != "" && named(t.group, strings.TrimSpace(answer)) {
			chosen = append(chosen, t)
		}
	}
	if len(chosen) != 1 {
		return target{}, errors.New("that is not one of them; give its fingerprint if two have the same name")
	}
	return chosen[0], nil
}
