#!/usr/bin/env bash
# A fake of the program: prints its process id and arguments and exits on a signal;
# SIGUSR1 makes it fail with FAIL_CODE. SAYS is what it says. VERSION_<host> is the version on a host.
if [ "$1" = --version ]; then
	v="VERSION_${HOST_NAME-}"
	echo "ringmaster version ${!v-1}"
	exit 0
fi
trap 'echo interrupted; kill $!; exit ${END_CODE-0}' INT
trap 'echo terminated; kill $!; exit 0' TERM HUP
trap 'echo cannot continue >&2; kill $!; exit $FAIL_CODE' USR1
sleep 1000 </dev/null >/dev/null 2>&1 &
echo "pid $$ args: $*"
[ -z "${SAYS-}" ] || echo "says $SAYS"
wait
