#!/bin/sh
# Installs what "make install" says: the programs, manual pages, completions, documents,
# and the files of systemd or launchd. Run it from the root of the repository.
#
#   scripts/install.sh PROGRAM [MKMODEL]      with PREFIX (/usr/local) and DESTDIR (empty)
set -eu
program=$1
mkmodel=${2:-}
prefix=${PREFIX:-/usr/local}
dest=${DESTDIR:-}
case $prefix in
/*) ;;
*)
	echo "install.sh: PREFIX is $prefix; expected a path that begins with /" >&2
	exit 2
	;;
esac
# systemd takes no such name of a program, however it is quoted; launchd's files are XML.
if [ "$(printf %s "$prefix" | LC_ALL=C tr -d '[:cntrl:]\042\047\134')" != "$prefix" ]; then
	echo "install.sh: PREFIX has control characters, quotes or backslashes, which systemd refuses" >&2
	exit 2
fi
bin=$dest$prefix/bin
share=$dest$prefix/share
mkdir -p "$bin" "$share/man/man1" "$share/bash-completion/completions" "$share/zsh/site-functions" \
	"$share/fish/vendor_completions.d" "$share/doc/ringmaster"
install -m 755 "$program" "$bin/ringmaster"
[ -z "$mkmodel" ] || install -m 755 "$mkmodel" "$bin/mkmodel"
run() { env -i PATH="$PATH" HOME=/nonexistent ${SOURCE_DATE_EPOCH:+SOURCE_DATE_EPOCH="$SOURCE_DATE_EPOCH"} "${RUNNER:-$program}" "$@"; }
run man "$share/man/man1"
run completion bash >"$share/bash-completion/completions/ringmaster"
run completion zsh >"$share/zsh/site-functions/_ringmaster"
run completion fish >"$share/fish/vendor_completions.d/ringmaster.fish"
install -m 644 LICENSE README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md "$share/doc/ringmaster/"
# The documents and examples lie beside README.md as here, so that its links lead to them.
for file in docs/*.md docs/*/*.* packaging/*/*.* scripts/train/README.md; do
	mkdir -p "$share/doc/ringmaster/${file%/*}"
	install -m 644 "$file" "$share/doc/ringmaster/$file"
done
# put TEXT FILE: the file with the text in place of @BINDIR@/ringmaster
put() { sed "s|@BINDIR@/ringmaster|$(printf %s "$1" | sed 's/[&|]/\\&/g')|" "$2"; }
if [ "${SYSTEM:-$(uname -s)}" = Darwin ]; then
	put "$(printf %s "$prefix/bin/ringmaster" | sed 's/&/\&amp;/g; s/</\&lt;/g; s/>/\&gt;/g')" packaging/ringmaster.plist >"$share/doc/ringmaster/ringmaster.plist"
else
	mkdir -p "$dest$prefix/lib/systemd/system" "$dest$prefix/lib/sysusers.d"
	install -m 644 packaging/ringmaster.sysusers "$dest$prefix/lib/sysusers.d/ringmaster.conf"
	# systemd.syntax(7): % begins a specifier; a word with other than plain characters is quoted.
	word=$(printf %s "$prefix/bin/ringmaster" | sed 's/%/%%/g')
	case $word in
	*[!A-Za-z0-9_./%+=@:,-]*) word="\"$word\"" ;;
	esac
	put "$word" packaging/ringmaster.service >"$dest$prefix/lib/systemd/system/ringmaster.service"
	install -m 644 packaging/ringmaster.env "$share/doc/ringmaster/"
fi
install -m 644 packaging/ringmaster.toml "$share/doc/ringmaster/"
