#!/bin/sh
# Runs on a host of a cluster: sh -s -- BINARY MODEL KEYFILE < probe.sh
# ("-" for none). Prints what ringmaster launch needs to know, one fact per line:
#
#	system Linux|Darwin
#	binary ok VERSION | missing | not-executable | fails WHY
#	model ok BYTES | missing | unreadable       (all parts of a split model)
#	key ok SUM | missing | unreadable
#	port INTERFACE NAME                         (names of ports on a Mac)
#	wireless INTERFACE                          (Linux)
#	ip:... or ifconfig:...                      (lines of those commands)
#	end
set -u
binary=$1 model=$2 key=$3

system=$(uname -s)
echo "system $system"

path=$(command -v "$binary" 2>/dev/null)
if [ -n "$path" ] && [ -x "$path" ] && [ ! -d "$path" ]; then
	if version=$("$path" --version 2>&1); then
		echo "binary ok $version"
	else
		echo "binary fails $(echo "$version" | head -n 1)"
	fi
elif [ -e "$binary" ]; then
	echo "binary not-executable"
else
	echo "binary missing"
fi

if [ "$model" != - ]; then
	if [ ! -e "$model" ]; then
		echo "model missing"
	elif [ ! -r "$model" ]; then
		echo "model unreadable"
	else
		case $model in
		*-00001-of-*.gguf) set -- "${model%-00001-of-*}"-*-of-*.gguf ;;
		*) set -- "$model" ;;
		esac
		bytes=0
		for part; do
			bytes=$((bytes + $(wc -c <"$part")))
		done
		echo "model ok $bytes"
	fi
fi
if [ "$key" != - ]; then
	if [ ! -e "$key" ]; then
		echo "key missing"
	elif [ ! -r "$key" ]; then
		echo "key unreadable"
	else
		echo "key ok $(cksum <"$key")"
	fi
fi

if [ "$system" = Darwin ]; then
	networksetup -listallhardwareports 2>/dev/null | awk '
		/^Hardware Port: / { name = substr($0, 16) }
		/^Device: / { print "port", $2, name }'
	ifconfig -a | sed 's/^/ifconfig:/'
else
	for w in /sys/class/net/*/wireless; do
		if [ -d "$w" ]; then
			w=${w%/wireless}
			echo "wireless ${w##*/}"
		fi
	done
	if command -v ip >/dev/null 2>&1; then
		ip -o addr show up 2>/dev/null | sed 's/^/ip:/'
	else
		ifconfig -a 2>/dev/null | sed 's/^/ifconfig:/'
	fi
fi
echo end
