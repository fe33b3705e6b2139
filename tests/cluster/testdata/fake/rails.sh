#!/bin/sh
# A fake of the program on a host with RDMA: rails here prints the host's report
# rails.json, rails plan runs the real program, PROGRAM, and a rank prints the device
# matrix that it was given and then runs ringmaster.sh. NO_RAILS names a host where
# rails here fails.
case "$1 ${2-}" in
"rails here")
	[ "$*" = "rails here --json --name $HOST_NAME" ] || exit 9
	if [ "$HOST_NAME" = "${NO_RAILS-}" ]; then
		echo "error: something is broken" >&2
		exit 1
	fi
	echo "Last login: today"
	cat rails.json
	exit
	;;
"rails plan") exec "$PROGRAM" "$@" ;;
serve*)
	[ "$JACCL_IBV_DEVICES" = "$MLX_IBV_DEVICES" ] || echo "two files"
	echo "ring ${JACCL_RING-no} matrix $JACCL_IBV_DEVICES $(tr -d '\n' <"$JACCL_IBV_DEVICES")"
	;;
esac
exec "$(dirname "$0")/ringmaster.sh" "$@"
