# shellcheck shell=bash disable=SC2154 # the variables are those of launch.sh
# The part of launch.sh for --transport rdma: finds the RDMA devices of the hosts and
# the cables between them, shows the map, and writes the device matrix on every host.

# find_planner: sets planner to the program that runs rails plan on this host
find_planner() {
	planner=$binary
	command -v "$planner" >/dev/null 2>&1 && return
	if command -v go >/dev/null 2>&1; then
		say "$binary is not installed on this host; building it to find the cables"
		mkdir -p bin && go build -o bin/ringmaster ./cmd/server || exit 1
	fi
	planner=bin/ringmaster
	[ -x "$planner" ] || die "--transport rdma needs ringmaster on this host too, to find the cables; install it here, or install Go to build it"
}

# at_all WHAT COMMAND INPUT: runs a command on all hosts in parallel, with the
# host's name as an additional argument and the file INPUT as standard input; the
# output goes to $dir/WHAT.RANK. Fails if the command fails on any host.
at_all() {
	local what=$1 command=$2 input=$3 r pids=() failed=0
	for ((r = 0; r < size; r++)); do
		# shellcheck disable=SC2086 # the command and its options are words
		$ssh $ssh_options "$(at "$r")" "$command$(quote "${hosts[r]}")" \
			<"$input" >"$dir/$what.$r" 2>"$dir/error.$r" &
		pids[r]=$!
	done
	for ((r = 0; r < size; r++)); do
		wait "${pids[r]}" && continue
		problem "rank $r on ${hosts[r]}: $what: $(tail -n 1 "$dir/error.$r")"
		failed=1
	done
	return $failed
}

# find_rails gets the reports of all hosts, finds the cables and shows them. It
# writes the matrix to $dir/matrix.json.
find_rails() {
	local r files=()
	[ "$size" -ge 2 ] || die "--transport rdma needs two hosts or more"
	find_planner
	say "looking for the RDMA devices of ${hosts[*]}"
	at_all rails "exec $(quote "$binary" rails here --json --name)" /dev/null || exit 1
	for ((r = 0; r < size; r++)); do
		files[r]="$dir/rails.$r"
	done
	"$planner" rails plan ${switched:+--switched} --out "$dir/matrix.json" "${files[@]}" >"$dir/map" 2>"$dir/why"
	r=$?
	say "RDMA cables:"
	sed 's/^/  /' "$dir/map" | show >&2
	if [ $r -ne 0 ]; then
		say "$(cat "$dir/why")"
		say "run ringmaster rails here on each host to see its devices; --transport tcp needs no RDMA"
		exit 1
	fi
	# The name depends on the content: a restarted rank finds the same file, and
	# another cluster does not overwrite it.
	matrix_name=matrix-$(cksum <"$dir/matrix.json" | sed 's/ /-/').json
	for ((r = 0; r < size; r++)); do
		matrix_at[r]="\$HOME/.cache/ringmaster/$matrix_name" # until put_matrix has written it
	done
}

# put_matrix writes the matrix on every host and sets matrix_at to its paths.
put_matrix() {
	local r script
	# Moved into place, so that a rank never reads an incomplete file.
	script='umask 077
d=${XDG_CACHE_HOME:-$HOME/.cache}/ringmaster
mkdir -p "$d" && cat >"$d/$1.$$" && mv -f "$d/$1.$$" "$d/$1" && echo "matrix $d/$1"'
	at_all matrix "sh -c $(quote "$script" launch "$matrix_name")" "$dir/matrix.json" || exit 1
	for ((r = 0; r < size; r++)); do
		matrix_at[r]=$(sed -n 's/^matrix //p' "$dir/matrix.$r" | tail -n 1)
		[ -n "${matrix_at[r]}" ] || die "rank $r on ${hosts[r]}: the device matrix could not be written to ~/.cache/ringmaster"
	done
}
