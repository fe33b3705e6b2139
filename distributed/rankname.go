package distributed

import "fmt"

// RankName names a rank for people: by its number and its host, as in "rank 2 (studio-b)", or
// by its number alone if the host is not known, because it has never joined. Every log line,
// error and event that is about a rank of a group names it by this function.
func RankName(rank int, host string) string {
	if host == "" {
		return fmt.Sprintf("rank %d", rank)
	}
	return fmt.Sprintf("rank %d (%s)", rank, host)
}

// hostOf returns the name of the host of a rank of a group, "" if it is not known.
func hostOf(hosts []string, rank int) string {
	if rank < 0 || rank >= len(hosts) {
		return ""
	}
	return hosts[rank]
}

// Host returns the name of the host of a rank of this group, "" if it is not known.
func (l *Link) Host(rank int) string { return hostOf(l.Hosts, rank) }

// Name names a rank of this group for people.
func (l *Link) Name(rank int) string { return RankName(rank, l.Host(rank)) }
