#!/usr/bin/env bash
# The tests of one package in several processes at once, each with a share of them: tests of brokers
# mostly wait, and those of one process run one after the other.
# usage: shards.sh PROCESSES PACKAGE [-v] [-race] [-run REGEXP] [-skip REGEXP] [-timeout TIME]
set -euo pipefail
processes=$1 package=$2
shift 2
build=() flags=(-test.paniconexit0) run=.
while [ $# -gt 0 ]; do
	case $1 in
	-race) build+=("$1") && shift && continue ;;
	-v) flags+=(-test.v) && shift && continue ;;
	-run) run=$2 ;;
	-skip | -timeout) flags+=("-test${1/-/.}" "$2") ;;
	*) echo "shards.sh: unknown flag $1" >&2 && exit 2 ;;
	esac
	shift 2
done
work=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$work"' EXIT
go test -c "${build[@]}" -o "$work/tests" "$package"
cd "$(go list -f '{{.Dir}}' "$package")"
"$work/tests" -test.list "$run" | grep -E '^(Test|Fuzz|Example)' >"$work/names"

share() {
	local names began=$SECONDS verdict=ok
	names=$(awk -v n="$processes" -v i="$1" 'NR % n == i' "$work/names" | paste -sd '|')
	[ -n "$names" ] || return 0
	"$work/tests" "${flags[@]}" -test.run "^($names)\$" >"$work/said.$1" 2>&1 || verdict=FAIL
	printf '%s\t%s\t%ds\n' "$verdict" "$package" "$((SECONDS - began))" >>"$work/said.$1"
	[ "$verdict" = ok ]
}
shares=() failed=0
for ((i = 0; i < processes; i++)); do share "$i" & shares+=($!); done
for job in "${shares[@]}"; do wait "$job" || failed=1; done
cat "$work"/said.*
exit "$failed"
