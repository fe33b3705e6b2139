#!/bin/sh
# A fake of ssh: a host is a network namespace if RINGS is set (the prefix of the
# names), else this host. -tt provides a terminal, as ssh does, so that Ctrl-C reaches
# the other side as a character. BROKEN names a host that cannot be reached,
# BECAUSE is why.
tty=
while :; do
	case $1 in
	-o) shift 2 ;;
	-tt) tty=1; shift ;;
	-*) shift ;;
	*) break ;;
	esac
done
host=${1#*@}
shift
if [ "$host" = "${BROKEN-}" ]; then
	echo "${BECAUSE-ssh: connect to host $host port 22: No route to host}" >&2
	exit 255
fi
export HOST_NAME="$host"
cd "${HOSTS:-.}/$host" 2>/dev/null || :
set -- sh -c "$*"
[ -z "${RINGS-}" ] || set -- ip netns exec "$RINGS$host" "$@"
if [ -n "$tty" ]; then
	command=exec # without it a shell in between receives Ctrl-C too
	for w; do
		command="$command '$(printf %s "$w" | sed "s/'/'\\\\''/g")'"
	done
	exec script -qec "$command" /dev/null
fi
exec "$@"
