#!/bin/sh
# Installs what "make install" says: the program, manual pages, completions, and the
# files of systemd or launchd. Run it from the root of the repository.
#
#   scripts/install.sh PROGRAM      with PREFIX (/usr/local) and DESTDIR (empty)
set -eu
program=$1
prefix=${PREFIX:-/usr/local}
dest=${DESTDIR:-}
bin=$dest$prefix/bin
share=$dest$prefix/share
mkdir -p "$bin" "$share/man/man1" "$share/bash-completion/completions" "$share/zsh/site-functions" \
	"$share/fish/vendor_completions.d" "$share/doc/ringmaster"
install -m 755 "$program" "$bin/ringmaster"
run() { env -i PATH="$PATH" HOME=/nonexistent ${SOURCE_DATE_EPOCH:+SOURCE_DATE_EPOCH="$SOURCE_DATE_EPOCH"} "${RUNNER:-$program}" "$@"; }
run man "$share/man/man1"
run completion bash >"$share/bash-completion/completions/ringmaster"
run completion zsh >"$share/zsh/site-functions/_ringmaster"
run completion fish >"$share/fish/vendor_completions.d/ringmaster.fish"
install -m 644 LICENSE README.md CHANGELOG.md "$share/doc/ringmaster/"
if [ "${SYSTEM:-$(uname -s)}" = Darwin ]; then
	sed "s|@BINDIR@|$prefix/bin|" packaging/ringmaster.plist >"$share/doc/ringmaster/ringmaster.plist"
else
	mkdir -p "$dest$prefix/lib/systemd/system" "$dest$prefix/lib/sysusers.d"
	install -m 644 packaging/ringmaster.sysusers "$dest$prefix/lib/sysusers.d/ringmaster.conf"
	sed "s|@BINDIR@|$prefix/bin|" packaging/ringmaster.service >"$dest$prefix/lib/systemd/system/ringmaster.service"
	install -m 644 packaging/ringmaster.env "$share/doc/ringmaster/"
fi
install -m 644 packaging/ringmaster.toml "$share/doc/ringmaster/"
