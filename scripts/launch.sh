#!/usr/bin/env bash
# Starts a cluster, shows the logs of its ranks, and stops it on Ctrl-C.
# Written for bash 3.2, the version on Macs.
set -u
unset LC_ALL
LC_ALL=C # not exported: patterns below are of bytes
cd "$(dirname "$0")/.." || exit 1

usage() {
	cat <<'USAGE'
usage: scripts/launch.sh [options] HOST1 HOST2 ... [-- flags of every rank]
       scripts/launch.sh [options] --local N      [-- flags of every rank]

Starts rank 0 on HOST1, rank 1 on HOST2 and so on over ssh, or with --local all
ranks on this host. First it checks each host: the program and its version, the
model file, the addresses. Ctrl-C stops all ranks. The exit code is the highest of
all ranks.

A rank that dies is restarted, rank 0 too: after 1 s, 2 s, 4 s and so on up to 60 s,
from the beginning again once it has run for a minute. That is a rank that is killed,
whose connection breaks, or that fails after it has run for more than 10 s or has been
restarted. A rank that fails at once when it is first started stops all others, and so
does rank 0 when it gives up with an error or ends in order. Another rank that ends in
order (ringmaster drain, SIGTERM) has left, and the others continue.

  --model FILE     the model, under the same path on every host; default is the
                   built-in model
  --binary FILE    the program on every host (default ringmaster; with --local the
                   default is to build it)
  --key-file FILE  the cluster's key, under the same path on every host
  --listen ADDR    where rank 0 serves HTTP (default 127.0.0.1:8080 on its host)
  --port P         the coordinator's port (default 32323)
  --coordinator A  the coordinator's address; default is a LAN address of HOST1
  --user NAME      log in as NAME
  --transport T    transport between the ranks. rdma first finds and shows the RDMA
                   devices of the hosts and the cables between them, and gives
                   every host the device matrix; others are passed to the ranks
  --switched       with --transport rdma: all ports are on one switched network
  --no-restart     a rank that is killed stops all others
  --stable-after S a rank that has run for S seconds is restarted after 1 s (default 60)
  --check          only check, and print the commands that would be run

The environment variable SSH replaces the ssh command ("ssh -F other.conf").
USAGE
}

# utf8 is a regular expression of the beginning of a text that is valid UTF-8 (RFC 3629).
t=$'[\x80-\xbf]'
utf8=$'^([\x01-\x7f]|[\xc2-\xdf]'$t$'|\xe0[\xa0-\xbf]'$t$'|[\xe1-\xec\xee\xef]'$t$t$'|\xed[\x80-\x9f]'$t
utf8+=$'|\xf0[\x90-\xbf]'$t$t$'|[\xf1-\xf3]'$t$t$t$'|\xf4[\x80-\x8f]'$t$t')*'

# clean TEXT: sets cleaned to a text of a host without what a terminal could obey: control
# characters, marks of direction and other invisible ones, as internal/safetext, and bytes
# that are not UTF-8, since a terminal of 8 bits takes 0x80 to 0x9f as control characters
clean() {
	cleaned=${1:0:8000}
	cleaned=${cleaned//[$'\t\n']/ }
	cleaned=${cleaned//[[:cntrl:]]/}
	if [[ $cleaned == *[$'\x80'-$'\xff']* ]]; then
		local rest=$cleaned
		cleaned=
		while [[ $rest =~ $utf8 ]]; do
			cleaned+=${BASH_REMATCH[0]}
			rest=${rest:${#BASH_REMATCH[0]}}
			[ -n "$rest" ] || break
			rest=${rest:1} # a byte that is not UTF-8, and those after it that begin nothing
			rest=${rest#"${rest%%[!$'\x80'-$'\xc1'$'\xf5'-$'\xff']*}"}
		done
	fi
	cleaned=${cleaned//$'\xc2'[$'\x80'-$'\x9f']/}                       # U+0080 to U+009F
	cleaned=${cleaned//$'\xd8\x9c'/}                                    # U+061C
	cleaned=${cleaned//$'\xe1\xa0\x8e'/}                               # U+180E
	cleaned=${cleaned//$'\xe2\x80'[$'\x8b\x8e\x8f'$'\xa8'-$'\xae']/} # U+200B, U+200E, U+200F, U+2028 to U+202E
	cleaned=${cleaned//$'\xe2\x81'[$'\xa0'-$'\xaf']/}                  # U+2060 to U+206F
	cleaned=${cleaned//$'\xef\xbb\xbf'/}                               # U+FEFF
	cleaned=${cleaned//$'\xef\xbf'[$'\xb9'-$'\xbb']/}                  # U+FFF9 to U+FFFB
	cleaned=${cleaned//$'\xf3\xa0'[$'\x80\x81']$t/}                    # U+E0000 to U+E007F
}
# show PREFIX: copies lines, each cleaned and after the prefix, if there is one
show() {
	local line
	while IFS= read -r -n 8000 line || [ -n "$line" ]; do # of a longer one, pieces
		clean "$line"
		printf '%s%s\n' "${1-}" "$cleaned"
		line=
	done
}

say() {
	clean "$*"
	printf 'launch: %s\n' "$cleaned" >&2
}
die() {
	say "$*"
	exit 2
}
# quote WORDS...: quotes them for the shell on the remote side
quote() {
	local w
	for w; do
		printf "'%s' " "$(printf %s "$w" | sed "s/'/'\\\\''/g")"
	done
}

local_ranks='' model='' binary='' key='' listen='' port=32323 coordinator='' user='' restart=1 check=0
transport='' switched='' stable=60
most_ranks=8 # as of ringmaster serve --world-size
hosts=()
# An empty value is that of an unset variable; without it there would be no key, say. One
# that begins with - would be an option of ssh, or of the program.
need() {
	[ $# -ge 2 ] && [ -n "$2" ] || die "$1 needs a value; see --help"
	case $2 in
	-*) die "$1 needs a value, and $2 is an option; see --help" ;;
	esac
}
# number NAME TEXT MOST: sets number to a text of digits from 1 to MOST, in base 10 if it
# begins with 0 too
number() {
	case $2 in
	*[!0-9]* | ?????????*) number=0 ;;
	*) number=$((10#$2)) ;;
	esac
	[ "$number" -ge 1 ] && [ "$number" -le "$3" ] || die "$1 $2: expected a number from 1 to $3"
}
while [ $# -gt 0 ]; do
	case $1 in
	--local) need "$@"; local_ranks=$2; shift 2 ;;
	--model | -m) need "$@"; model=$2; shift 2 ;;
	--binary) need "$@"; binary=$2; shift 2 ;;
	--key-file) need "$@"; key=$2; shift 2 ;;
	--listen | -l) need "$@"; listen=$2; shift 2 ;;
	--port) need "$@"; port=$2; shift 2 ;;
	--coordinator) need "$@"; coordinator=$2; shift 2 ;;
	--user) need "$@"; user=$2; shift 2 ;;
	--transport) need "$@"; transport=$2; shift 2 ;;
	--switched) switched=1; shift ;;
	--no-restart) restart=0; shift ;;
	--stable-after) need "$@"; stable=$2; shift 2 ;;
	--check) check=1; shift ;;
	--help | -h) usage; exit 0 ;;
	--) shift; break ;;
	-*) die "unknown option $1; flags of ringmaster go after --; see --help" ;;
	*) hosts[${#hosts[@]}]=$1; shift ;;
	esac
done
# The rest of "$@" are flags of every rank.

if [ -n "$local_ranks" ]; then
	number --local "$local_ranks" "$most_ranks"
	[ ${#hosts[@]} -eq 0 ] || die "--local starts all ranks on this host; do not name hosts"
	size=$number
else
	size=${#hosts[@]}
	[ "$size" -ge 1 ] || {
		usage >&2
		exit 2
	}
	[ "$size" -le "$most_ranks" ] || die "$size hosts; at most $most_ranks ranks form a group"
	for host in ${user:+"$user"} "${hosts[@]}"; do
		case $host in
		*[!\!-~]*) die "$host: a host or a user has a space, a control character or no ASCII in its name" ;;
		esac
	done
fi
number --port "$port" 65535
port=$number
number --stable-after "$stable" 99999999
stable=$number

dir=$(mktemp -d "${TMPDIR:-/tmp}/ringmaster-launch.XXXXXX") || exit 1
# A background process that a signal ends before it has set its own traps runs the EXIT
# trap of this one. (bash 3.2 has no BASHPID.)
cleanup() { [ "$(exec sh -c 'echo $PPID')" != $$ ] || rm -rf "$dir"; }
trap cleanup EXIT
ssh=${SSH:-ssh}
ssh_options='-o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=5 -o ServerAliveCountMax=3'
at() { printf %s "${user:+$user@}${hosts[$1]}"; }

if [ -n "$switched" ] && [ "$transport" != rdma ]; then
	die "--switched requires --transport rdma"
fi
if [ "$transport" = rdma ] && [ -n "$local_ranks" ] && [ -z "${RINGMASTER_VERBS_LIBRARY-}" ]; then
	die "--transport rdma does not work with --local: no cable connects this host to itself; name hosts, or use --transport tcp (for tests, RINGMASTER_VERBS_LIBRARY can replace the system's verbs library, with its device matrix in JACCL_IBV_DEVICES)"
fi
. scripts/cluster/rails.sh
planner='' matrix_name='' matrix_at=() ring=''
# As in JACCL the presence of the variable counts, not its value.
[ -z "${JACCL_RING+set}${MLX_JACCL_RING+set}" ] || ring=JACCL_RING=1

# --- checks -----------------------------------------------------------------

problems=0
problem() {
	say "$*"
	problems=$((problems + 1))
}
fact() { sed -n "s/^$2 //p" "$dir/probe.$1" | head -n 1; } # fact RANK KEY

check_hosts() {
	local r pids='' out first
	[ -n "$binary" ] || binary=ringmaster
	for ((r = 0; r < size; r++)); do
		# shellcheck disable=SC2086 # the command and its options are words
		$ssh $ssh_options "$(at "$r")" "sh -s -- $(quote "$binary" "${model:--}" "${key:--}")" \
			<scripts/cluster/probe.sh >"$dir/probe.$r" 2>"$dir/error.$r" &
		pids="$pids $!"
	done
	# shellcheck disable=SC2086
	wait $pids
	for ((r = 0; r < size; r++)); do
		if [ "$(tail -n 1 "$dir/probe.$r")" != end ]; then
			problem "rank $r on ${hosts[r]}: ssh failed: $(tail -n 1 "$dir/error.$r"). Try: $ssh $(at "$r") true"
			continue
		fi
		out=$(fact "$r" binary)
		case $out in
		ok*) ;;
		missing) problem "rank $r on ${hosts[r]}: $binary not found; install it there, or give its path with --binary" ;;
		not-executable) problem "rank $r on ${hosts[r]}: $binary is not executable; run chmod +x on it" ;;
		*) problem "rank $r on ${hosts[r]}: $binary does not run: ${out#fails }" ;;
		esac
		if [ -n "$model" ]; then
			out=$(fact "$r" model)
			case $out in
			ok*) ;;
			*) problem "rank $r on ${hosts[r]}: model $model is $out; every host needs the file under this path" ;;
			esac
		fi
		if [ -n "$key" ]; then
			out=$(fact "$r" key)
			case $out in
			ok*) ;;
			*) problem "rank $r on ${hosts[r]}: key file $key is $out; every host needs the same file under this path" ;;
			esac
		fi
	done
	[ $problems -eq 0 ] || return
	for ((r = 1; r < size; r++)); do
		for first in binary model key; do
			out=$(fact "$r" $first)
			[ "$out" = "$(fact 0 $first)" ] && continue
			case $first in
			binary) problem "rank $r on ${hosts[r]} has version ${out#ok }, rank 0 on ${hosts[0]} has $(fact 0 binary | sed 's/^ok //'); install the same everywhere" ;;
			model) problem "model $model has ${out#ok } bytes on rank $r (${hosts[r]}), $(fact 0 model | sed 's/^ok //') on rank 0 (${hosts[0]}); copy it again" ;;
			key) problem "key file $key on rank $r (${hosts[r]}) differs from that of rank 0 (${hosts[0]}); copy it again" ;;
			esac
		done
	done
}

choose_coordinator() {
	local r files=()
	for ((r = 0; r < size; r++)); do
		files[r]="$dir/probe.$r"
	done
	awk -f scripts/cluster/coordinator.awk "${files[@]}" >"$dir/addresses"
	coordinator=$(sed -n 's/^choose \([^ ]*\) .*/\1/p' "$dir/addresses")
	if [ -z "$coordinator" ]; then
		say "${hosts[0]} has no address suitable for the coordinator (give one with --coordinator):"
		sed 's/^skip \([^ ]*\) \([^ ]*\) /  \1 on \2: /' "$dir/addresses" | show >&2
		exit 1
	fi
	say "coordinator $coordinator on ${hosts[0]}: $(sed -n 's/^choose [^ ]* //p' "$dir/addresses")"
}

if [ -n "$local_ranks" ]; then
	if [ -z "$binary" ]; then
		scripts/prepare.sh || exit 1
		mkdir -p bin && go build -o bin/ringmaster ./cmd/server || exit 1
		binary=bin/ringmaster
	fi
	coordinator=${coordinator:-127.0.0.1}
	threads=$(($(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1) / size))
	set -- --threads "$((threads > 0 ? threads : 1))" ${1+"$@"}
else
	check_hosts
	[ $problems -eq 0 ] || exit 1
	[ -n "$coordinator" ] || choose_coordinator
	[ "$transport" != rdma ] || find_rails
fi
case $coordinator in
*:*:*) coordinator="[${coordinator#[}" && coordinator="${coordinator%]}]" ;; # IPv6
esac

# --- ranks ------------------------------------------------------------------

# arguments RANK FLAGS...: sets the array args to the rank's command line
arguments() {
	local rank=$1
	shift
	args=("$binary" serve --distributed --rank "$rank" --world-size "$size" --coordinator "$coordinator:$port")
	[ -z "$model" ] || args=("${args[@]}" --model "$model")
	[ -z "$key" ] || args=("${args[@]}" --cluster-key-file "$key")
	[ -z "$listen" ] || [ "$rank" -ne 0 ] || args=("${args[@]}" --listen "$listen")
	[ -z "$transport" ] || args=("${args[@]}" --transport "$transport")
	if [ -n "${matrix_at[rank]-}" ]; then
		args=(env "JACCL_IBV_DEVICES=${matrix_at[rank]}" "MLX_IBV_DEVICES=${matrix_at[rank]}" ${ring:+"$ring"} "${args[@]}")
	fi
	args=("${args[@]}" ${1+"$@"})
	# Rank 0 comes back, so the others keep the model and wait. A --connect-timeout of the
	# user is for rank 0, which waits for its ranks by it.
	[ $restart -eq 0 ] || [ "$rank" -eq 0 ] || args=("${args[@]}" --connect-timeout 24h)
}

if [ $check -eq 1 ]; then
	for ((r = 0; r < size; r++)); do
		arguments "$r" ${1+"$@"}
		printf '%s\n' "rank $r${hosts:+ on ${hosts[r]}}: $(quote "${args[@]}")"
	done | show
	[ -z "$matrix_name" ] || show <"$dir/matrix.json"
	exit 0
fi
[ -z "$matrix_name" ] || put_matrix

# Each rank runs in a process group of its own, so that Ctrl-C in the terminal
# reaches only this script, which then stops the ranks.
set -m
mkfifo "$dir/ends" || exit 1
exec 9<>"$dir/ends"
pids=() codes=() started=()
# Of a rank that died: how often in a row, and the process that waits until it is
# started again.
deaths=() sleeper=()
starts=0

# prefix RANK: writes the log of a rank line by line
prefix() {
	trap '' INT TERM HUP
	show "[$1] "
}

# start RANK FLAGS...
start() {
	local rank=$1 remote log
	arguments "$@"
	starts=$((starts + 1))
	log=$dir/log.$starts # the rest of the previous one is still being shown
	mkfifo "$log" || exit 1
	prefix "$rank" <"$log" 9>&- &
	if [ -n "$local_ranks" ]; then
		(
			trap : INT TERM HUP # the program handles signals; this reports its exit code
			"${args[@]}" </dev/null >"$log" 2>&1 9>&-
			echo "$rank $?" >&9
		) 2>/dev/null &
	else
		# caffeinate keeps a Mac awake. The terminal (-tt) passes Ctrl-C on, without
		# echo, and ends the program if ssh is killed.
		remote="exec sh -c $(quote 'stty -echo 2>/dev/null; if command -v caffeinate >/dev/null 2>&1; then caffeinate -i -w $$ & fi; exec "$@"') ringmaster $(quote "${args[@]}")"
		[ -p "$dir/keys.$rank" ] || mkfifo "$dir/keys.$rank" || exit 1
		eval "exec $((20 + rank))<>\"$dir/keys.$rank\""
		(
			trap : INT TERM HUP
			# shellcheck disable=SC2086
			$ssh -tt $ssh_options "$(at "$rank")" "$remote" <"$dir/keys.$rank" >"$log" 2>&1 9>&-
			echo "$rank $?" >&9
		) 2>/dev/null &
	fi
	pids[rank]=$!
	codes[rank]=''
	started[rank]=$SECONDS
}

# signal NAME: sends it to every rank that has not ended
signal() {
	local r
	for ((r = 0; r < size; r++)); do
		[ -n "${codes[r]-}${sleeper[r]-}" ] || kill "-$1" -- "-${pids[r]}" 2>/dev/null
	done
}

# interrupt sends Ctrl-C to all ranks, as a user at their terminals would.
interrupt() {
	local r
	if [ -n "$local_ranks" ]; then
		signal INT
		return
	fi
	for ((r = 0; r < size; r++)); do
		[ -n "${codes[r]-}${sleeper[r]-}" ] || eval "printf '\\003' >&$((20 + r))"
	done
}

stopping=0 watchdog='' patience=2
[ -z "$matrix_name" ] || patience=10
stop() {
	stopping=$((stopping + 1))
	local r
	case $stopping in
	1)
		say "stopping"
		for ((r = 0; r < size; r++)); do
			case ${sleeper[r]-} in
			'' | soon) ;;
			*) kill -TERM -- "-${sleeper[r]}" 2>/dev/null; echo "$r start" >&9 ;;
			esac
		done
		interrupt
		# Ranks that do not exit in time are killed. Those with RDMA devices get more
		# time: with Apple's provider a process that ends without giving them back
		# leaves queue pairs used up until a power cycle. Over ssh only the connection
		# is killed; the rank gets SIGHUP and ends in order.
		(
			trap 'exit 0' TERM
			sleep "$patience" & wait $!
			signal TERM
			sleep "$patience" & wait $!
			signal KILL
			for ((r = 0; r < size; r++)); do
				echo "$r 137" >&9
			done
		) &
		watchdog=$!
		;;
	2) signal TERM ;;
	*)
		signal KILL
		for ((r = 0; r < size; r++)); do
			echo "$r 137" >&9
		done
		;;
	esac
}
trap stop INT TERM HUP

# dies RANK CODE: whether a rank that has ended is to be restarted. Rank 0 gives up with
# an error when it cannot continue.
dies() {
	local rank=$1 code=$2
	[ $stopping -eq 0 ] && [ $restart -eq 1 ] && [ "$code" -ne 0 ] || return 1
	[ "$code" -le 128 ] || return 0
	[ "${deaths[rank]-0}" -eq 0 ] || return 0
	[ "$rank" -ne 0 ] && [ $((SECONDS - started[rank])) -gt 10 ]
}

# revive RANK CODE: restarts a rank after a pause that grows while the rank keeps dying
revive() {
	local rank=$1 code=$2 pause=1 i
	wait "${pids[rank]}" 2>/dev/null
	kill -KILL -- "-${pids[rank]}" 2>/dev/null # no process of it may remain
	[ $((SECONDS - started[rank])) -lt "$stable" ] || deaths[rank]=0
	for ((i = 0; i < ${deaths[rank]-0} && pause < 60; i++)); do
		pause=$((pause * 2))
	done
	[ $pause -le 60 ] || pause=60
	deaths[rank]=$((${deaths[rank]-0} + 1))
	say "rank $rank exited with code $code; restarting it in $pause s (time ${deaths[rank]} in a row)"
	sleeper[rank]=soon
	(
		trap 'exit 0' TERM
		trap '' INT HUP
		sleep "$pause" & wait $!
		echo "$rank start" >&9
	) 2>/dev/null &
	sleeper[rank]=$!
	[ $stopping -eq 0 ] || echo "$rank start" >&9 # Ctrl-C arrived in the meantime
}

# ended RANK CODE
ended() {
	local rank=$1 code=$2
	[ -z "${codes[rank]}" ] && [ -z "${sleeper[rank]-}" ] || return # reported twice
	if dies "$rank" "$code"; then
		revive "$rank" "$code"
		return
	fi
	# A Ctrl-C before the program has installed its handler is not a failure.
	[ $stopping -eq 0 ] || [ "$code" -ne 130 ] || code=0
	codes[rank]=$code
	left=$((left - 1))
	[ $stopping -eq 0 ] || return
	if [ "$rank" -ne 0 ] && [ "$code" -eq 0 ]; then
		say "rank $rank left the group; the other ranks continue"
		return
	fi
	say "rank $rank exited with code $code"
	# After an orderly exit of rank 0 the others exit by themselves; otherwise this
	# stops them.
	stop
}

# again RANK FLAGS...: the pause before the restart of a rank is over
again() {
	local rank=$1
	[ -n "${sleeper[rank]-}" ] || return # reported twice
	sleeper[rank]=''
	if [ $stopping -gt 0 ]; then
		codes[rank]=0
		left=$((left - 1))
		return
	fi
	start "$@"
	[ $stopping -eq 0 ] || interrupt # Ctrl-C arrived in the meantime
}

if [ -n "$local_ranks" ]; then
	say "$size ranks on this host; rank 0 will serve http://${listen:-127.0.0.1:8080} (Ctrl-C stops all)"
else
	say "$size ranks on ${hosts[*]}; rank 0 will serve ${listen:-127.0.0.1:8080} on ${hosts[0]} (Ctrl-C stops all)"
	[ -n "$key" ] || say "warning: without --key-file anyone who can reach $coordinator:$port can join the cluster"
fi
for ((r = 0; r < size; r++)); do
	start "$r" ${1+"$@"}
done

# A background process reads the exit codes, because in every version of bash a
# signal interrupts wait, but not read.
left=$size
while [ $left -gt 0 ]; do
	(read -r line <&9 && printf '%s\n' "$line" >"$dir/end") &
	reader=$!
	until wait $reader || ! kill -0 $reader 2>/dev/null; do :; done
	read -r rank code <"$dir/end" || { stop; exit 1; } # somebody has emptied the temporary folder
	if [ "$code" = start ]; then
		again "$rank" ${1+"$@"}
	else
		ended "$rank" "$code"
	fi
done
[ -z "$watchdog" ] || kill -TERM -- "-$watchdog" 2>/dev/null
wait 2>/dev/null

worst=0
for ((r = 0; r < size; r++)); do
	[ "${codes[r]}" -le $worst ] || worst=${codes[r]}
done
exit $worst
