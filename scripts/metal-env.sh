# Sourced by the metal-*.sh scripts: changes to the root of the module and sets
# the environment of the software Metal device. On a host that cannot run the
# device nothing can be checked: the sourcing script then exits with a warning
# or, with METAL_REQUIRED=1, with a failure.
cd "$(dirname "$0")/.."
if ! metal_env=$(tests/metalsim/env.sh); then
	cat >&2 <<-END
		****************************************************************
		*** NOTHING WAS CHECKED of metal/ by $(basename "$0"):
		*** the software Metal device cannot run here (see above).
		*** On Debian x86-64 scripts/prepare.sh metal installs it.
		****************************************************************
	END
	case ${METAL_REQUIRED:-0} in
	0) exit 0 ;;
	*)
		echo "FAILED: METAL_REQUIRED=$METAL_REQUIRED" >&2
		exit 1
		;;
	esac
fi
eval "$metal_env"
