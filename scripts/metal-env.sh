# Sourced by the metal-*.sh scripts: goes to the root of the module and sets the
# environment of the software Metal device. Where that cannot run the script
# ends well, after saying so; METAL_REQUIRED=1 makes it an error.
cd "$(dirname "$0")/.."
if ! metal_env=$(tests/metalsim/env.sh); then
	echo "NOT CHECKED: metal/ (see above; Debian: scripts/prepare.sh metal)" >&2
	[ -z "${METAL_REQUIRED:-}" ] || exit 1
	exit 0
fi
eval "$metal_env"
