# Chooses the coordinator's address: awk -f coordinator.awk PROBE0 PROBE1 ...
#
# Reads the output of probe.sh from each host, rank 0 first, and prints
#
#	choose ADDRESS INTERFACE why
#	skip ADDRESS INTERFACE why      for every other address of rank 0
#
# The data also travels over the network of the coordinator's address, so it must be
# a LAN address: never loopback, link-local (169.254/16, fe80::/10), point-to-point
# (with a peer, or in a network of fewer than four addresses, like each Thunderbolt
# cable), a VPN, or a bridge of virtual machines. Of the rest, private IPv4 addresses
# on a wired interface come first, then wireless, then public IPv4, then IPv6; before
# all of these, networks on which every other host has an address too.

function hex(s,    i, n) {
	s = tolower(s)
	for (i = 3; i <= length(s); i++) n = n * 16 + index("0123456789abcdef", substr(s, i, 1)) - 1
	return n
}
# length_of returns the prefix length of a mask such as 4294967040
function length_of(mask,    n) {
	for (n = 32; n > 0 && mask % 2 == 0; n--) mask = mask / 2
	return mask == 0 ? 0 : n
}
function number(a,    p) {
	split(a, p, ".")
	return ((p[1] * 256 + p[2]) * 256 + p[3]) * 256 + p[4]
}
function network(a, len) { return int(number(a) / 2 ^ (32 - len)) "/" len }

# private IPv4: 10/8, 172.16/12, 192.168/16
function private(a,    p) {
	split(a, p, ".")
	return p[1] == 10 || p[1] == 172 && p[2] >= 16 && p[2] <= 31 || p[1] == 192 && p[2] == 168
}

# unfit says why an address is not suitable for a coordinator, "" if it is.
function unfit(family, iface, a, len, peer, flags,    l) {
	l = tolower(a)
	if (iface ~ /^lo[0-9]*$/ || a ~ /^127\./ || l == "::1") return "loopback"
	if (a ~ /^169\.254\./ || l ~ /^fe[89ab]/) return "link-local"
	if (iface ~ /^thunderbolt/ || ports[iface] ~ /^Thunderbolt ([0-9]+|Bridge)$/) return "a Thunderbolt cable"
	if (iface ~ /^(utun|tun|tap|wg|tailscale|zt|ppp|ipsec|gif|stf|nebula)/) return "a tunnel"
	if (a ~ /^100\.(6[4-9]|[7-9][0-9]|1[01][0-9]|12[0-7])\./) return "a VPN or the provider's network"
	if (iface ~ /^(docker|br-|virbr|veth|cni|flannel|cali|kube|podman|lxc|lxdbr|vmnet|vnet|bridge|awdl|llw|anpi|ap[0-9])/)
		return "virtual or a bridge"
	if (peer || flags ~ /POINTOPOINT/) return "point-to-point"
	if (family == "inet" && len >= 30 || family == "inet6" && len >= 126) return "point-to-point (/" len ")"
	if (flags ~ /deprecated|tentative|dadfailed|temporary|detached/) return "not permanent"
	return ""
}
function score(family, iface, a,    s) {
	if (family == "inet") s = private(a) ? 100 : 40
	else s = tolower(a) ~ /^f[cd]/ ? 30 : 10
	if (wireless[iface] || ports[iface] ~ /Wi-Fi|AirPort/ || iface ~ /^wl/) s -= 35
	return s
}
# found records an address of the current host.
function found(family, iface, a, len, peer, flags,    why) {
	sub(/%.*/, "", a)
	sub(/@.*/, "", iface)
	if (host == 0) {
		n++
		addr[n] = a; on[n] = iface; fam[n] = family; plen[n] = len
		why_not[n] = unfit(family, iface, a, len, peer, flags)
		points[n] = score(family, iface, a)
	} else if (family == "inet" && unfit(family, iface, a, len, peer, flags) == "")
		seen[host, network(a, len)] = 1
}
function flush(    i) { # of one interface of ifconfig
	for (i = 1; i <= pending; i++)
		if (!inactive) found(p_family[i], p_iface, p_addr[i], p_len[i], p_peer[i], p_flags[i] " " i_flags)
	pending = inactive = 0
}

BEGIN { host = -1 }
FNR == 1 { flush(); host++; split("", ports); split("", wireless) }
/^wireless / { wireless[$2] = 1 }
/^port / { name = $0; sub(/^port [^ ]+ /, "", name); ports[$2] = name }

# 2: eth0    inet 192.168.1.10/24 brd 192.168.1.255 scope global eth0\ ...
# 4: tun0    inet 10.8.0.6 peer 10.8.0.5/32 scope global tun0
/^ip:/ {
	if ($3 != "inet" && $3 != "inet6") next
	peer = $5 == "peer"
	a = $4
	len = peer ? $6 : $4
	sub(/\/.*/, "", a)
	if (!sub(/.*\//, "", len)) len = $3 == "inet" ? 32 : 128
	found($3, $2, a, len + 0, peer, $0)
	next
}

# en0: flags=8863<UP,BROADCAST,RUNNING> mtu 1500
#	inet 192.168.1.20 netmask 0xffffff00 broadcast 192.168.1.255
#	inet6 fe80::1%en0 prefixlen 64 secured scopeid 0xb
/^ifconfig:[^ \t]/ {
	flush()
	p_iface = substr($1, 10)
	sub(/:$/, "", p_iface)
	i_flags = $2
	next
}
/^ifconfig:[ \t]/ {
	if ($2 == "status:") inactive = $3 == "inactive"
	if ($2 != "inet" && $2 != "inet6") next
	pending++
	p_family[pending] = $2; p_addr[pending] = $3; p_peer[pending] = $4 == "-->"
	p_len[pending] = $2 == "inet" ? 32 : 128
	p_flags[pending] = $0
	for (i = 4; i < NF; i++) {
		if ($i == "prefixlen") p_len[pending] = $(i + 1) + 0
		if ($i == "netmask") p_len[pending] = length_of($(i + 1) ~ /^0x/ ? hex($(i + 1)) : number($(i + 1)))
	}
}

END {
	flush()
	best = 0
	for (i = 1; i <= n; i++) {
		if (why_not[i] != "") continue
		common = 0
		for (h = 1; h <= host; h++)
			common += fam[i] == "inet" && ((h, network(addr[i], plen[i])) in seen)
		if (host > 0 && common == host) { points[i] += 1000; shared[i] = 1 }
		if (!best || points[i] > points[best]) best = i
	}
	for (i = 1; i <= n; i++) {
		if (i == best) print "choose", addr[i], on[i], shared[i] ? "every host is on its network" : "the best address of rank 0"
		else print "skip", addr[i], on[i], why_not[i] != "" ? why_not[i] : "another is preferred"
	}
}
