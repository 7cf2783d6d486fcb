# shellcheck shell=bash
#
# common.sh: what the scripts of test/ share.  Sourced, from any folder.
#
# Everything that is started lives below one temporary folder, programs
# included (the temporary installation is a copy), so that "what did we start"
# is answered by /proc/PID/exe and by nothing else.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
JOBS=$(nproc 2>/dev/null || echo 2)

say() { printf '%s\n' "$*"; }
die() { printf '%s: %s\n' "${0##*/}" "$*" >&2; exit 1; }

# The pg_config of the newest installed server (15 or later) that has its
# development files; $PG_CONFIG wins.  Prints nothing and fails when there is none.
find_pg_config() {
	local candidate version
	for candidate in ${PG_CONFIG:+"$PG_CONFIG"} $(ls -vd /usr/lib/postgresql/*/bin/pg_config 2>/dev/null | tac) pg_config; do
		version=$("$candidate" --version 2>/dev/null | sed -n 's/^PostgreSQL \([0-9]*\).*/\1/p')
		if [ "${version:-0}" -ge 15 ] && [ -e "$("$candidate" --includedir-server)/postgres.h" ] &&
			[ -e "$("$candidate" --pgxs)" ] &&
			[ -x "$("$candidate" --bindir)/postgres" ]; then
			command -v "$candidate"
			return 0
		fi
		[ "$candidate" = "${PG_CONFIG:-}" ] && return 1
	done
	return 1
}

# The user that servers run as: root may not.
server_user() {
	if [ "$(id -u)" = 0 ]; then echo postgres; else id -un; fi
}

as_server_user() {
	if [ "$(id -u)" = 0 ]; then
		runuser -u postgres -- "$@"
	else
		"$@"
	fi
}

# Makes $TMP, removed at exit together with every process that runs a program
# from it.  The name is short: it holds unix sockets.  Uses $1 as its prefix.
make_temporary_folder() {
	local parent=${TMPDIR:-/tmp}
	[ ${#parent} -le 40 ] || parent=/tmp
	TMP=$(mktemp -d "$parent/$1.XXXXXX") || exit 1
	TMP=$(cd "$TMP" && pwd -P)
	[ "$(id -u)" != 0 ] || chown postgres: "$TMP"
	trap cleanup EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM HUP
}

# Pids of the processes whose program lies in $1; zombies have none.
processes_from() {
	local exe target
	for exe in /proc/[0-9]*/exe; do
		target=$(readlink "$exe" 2>/dev/null) || continue
		case $target in
			"$1"/*) exe=${exe#/proc/}; echo "${exe%/exe}" ;;
		esac
	done
}

cleanup() {
	local status=$? pids round
	trap - EXIT
	trap '' INT TERM HUP
	if [ -n "${TMP:-}" ]; then
		for round in 1 2 3 4 5; do
			pids=$(processes_from "$TMP")
			[ -n "$pids" ] || break
			# shellcheck disable=SC2086
			kill -KILL $pids 2>/dev/null
			sleep 0.2
		done
		[ -n "${KEEP:-}" ] || rm -rf "$TMP"
	fi
	exit "$status"
}

# The folder that builds are made in: build/ of the tree, where it is ours; else, for
# somebody in a tree of another's, one in the temporary folder.
choose_build_folder() {
	BUILD=${INCSINK_BUILD:-$ROOT/build}
	if ! mkdir -p "$BUILD" 2>/dev/null || ! [ -O "$BUILD" ] || ! [ -w "$BUILD" ]; then
		[ -n "${TMP:-}" ] || die "$BUILD is not yours: remove it, or use a clone of your own"
		BUILD=$TMP/build
		mkdir -p "$BUILD" || return 1
	fi
	export INCSINK_BUILD=$BUILD
}

# Compiles the library in build/$1 (release or inject) and leaves incsink.so
# there.  The sources are mirrored with their times, so that it is incremental
# and never shares an object with another build.
build_library() {
	local mode=$1 dir inject=
	choose_build_folder || return 1
	dir=$BUILD/$1
	[ "$mode" = release ] || inject=INJECT=1
	# Two makes in one tree take turns.
	exec 9>"$BUILD/.lock"
	flock 9 || return 1
	mkdir -p "$dir" || return 1
	# What was taken away in the tree must not stay here.
	(cd "$dir" && find . -name '*.[ch]' -o -name '*.sql' | while read -r file; do
		[ -e "$ROOT/$file" ] || rm -f "$file" "${file%.c}.o"
	done)
	# GNU tar refuses no file here: the list is never empty.
	(cd "$ROOT" && find Makefile incsink.control sql src \
		\( -name '*.[ch]' -o -name '*.sql' -o -name Makefile -o -name '*.control' \) -type f |
		sort | tar -cf - -T -) | tar -xf - -C "$dir" --no-same-owner || return 1
	make -s -C "$dir" -j"$JOBS" PG_CONFIG="$PG_CONFIG" $inject all 9>&-
	local status=$?
	exec 9>&-
	return $status
}

build_collector() {
	gcc -O2 -g -std=gnu11 -Wall -Wextra -Werror -o "$1" "$ROOT/test/collector/collector.c"
}

# A TCP port nobody listens on now; unix sockets carry it in their name only.
free_port() {
	local port round
	for round in $(seq 100); do
		port=$((20000 + (RANDOM * 32768 + RANDOM) % 12000))
		(exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || { echo "$port"; return 0; }
	done
	return 1
}

# Every process of the server on data directory $1 works in that directory:
# the postmaster, its children, and orphans whose postmaster is gone.
server_processes() {
	local cwd
	for cwd in /proc/[0-9]*/cwd; do
		if [ "$(readlink "$cwd" 2>/dev/null)" = "$1" ]; then
			cwd=${cwd#/proc/}; echo "${cwd%/cwd}"
		fi
	done
}

# SIGKILL for the whole server on $1, as if its machine had failed.  Returns when
# all of its processes are gone (zombies count as gone: who reaps them may take
# seconds), with the lock files removed that would otherwise refuse the next
# start because of such a zombie.
kill_server() {
	local data=$1 pid port sockets pids round
	{ read -r pid; read -r _; read -r _; read -r port; read -r sockets; } < "$data/postmaster.pid" || return 1
	# The postmaster first: nobody restarts or reports anything.
	kill -KILL "$pid"
	for round in $(seq 200); do
		pids=$(server_processes "$data")
		if [ -z "$pids" ]; then
			rm -f "$data/postmaster.pid" "$sockets/.s.PGSQL.$port.lock"
			return 0
		fi
		# shellcheck disable=SC2086
		kill -KILL $pids 2>/dev/null
		sleep 0.05
	done
	return 1
}

# Waits up to $1 seconds until the command that follows succeeds.
wait_until() {
	local deadline=$((SECONDS + $1))
	shift
	until "$@"; do
		[ $SECONDS -lt $deadline ] || return 1
		sleep 0.05
	done
}
