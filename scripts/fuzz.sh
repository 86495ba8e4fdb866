#!/usr/bin/env bash
# Runs every fuzz target there is for a while: fuzz.sh TIME [PATTERN].
# TIME is what each gets (10s), or "total:SECONDS" to share out. A found crasher stays under testdata/fuzz.
#
# Go before 1.27 now and then fails a target at the end of its time with a bare "context deadline exceeded" and no
# input (go.dev/issue/75804). Such a target runs again with a number of executions instead of a time, where that cannot
# happen: what fails there has failed.
set -euo pipefail

time=${1:?time for each target, such as 10s, or total:240}
pattern=${2:-^Fuzz}

listing=$(go test -list "$pattern" -json ./...) || { printf '%s\n' "$listing"; echo "fuzz: the tests do not build" >&2; exit 1; }
targets=()
while read -r package target; do
    targets+=("$package $target")
done < <(sed -n 's/.*"Action":"output","Package":"\([^"]*\)".*"Output":"\(Fuzz[A-Za-z0-9_]*\)\\n".*/\1 \2/p' <<<"$listing")
[ ${#targets[@]} -gt 0 ] || { echo "fuzz: no target matches $pattern" >&2; exit 1; }

case $time in
    total:*)
        each=$((${time#total:} / ${#targets[@]}))
        [ "$each" -ge 2 ] || each=2
        [ "$each" -le 20 ] || each=20
        time=${each}s
        ;;
esac

# The race prints the deadline right below the verdict, and never an input.
deadline_race() {
    grep -A 1 '^--- FAIL' <<<"$1" | grep -qx ' *context deadline exceeded' &&
        ! grep -q -e 'Failing input' -e 'panic' -e 'fuzzing process' <<<"$1"
}

echo "fuzz: ${#targets[@]} targets, $time each"
failed=0
for row in "${targets[@]}"; do
    read -r package target <<<"$row"
    run() { output=$(go test -run '^$' -fuzz "^$target\$" -fuzztime "$1" "$package" 2>&1); }
    if run "$time" || { deadline_race "$output" && echo "again $target: the deadline race" && run 50000x; }; then
        echo "ok    $target  ${package##*bluering/}  $(grep -o 'execs: [0-9]*' <<<"$output" | tail -n 1)"
    else
        echo "FAIL  $target  $package"
        printf '%s\n' "$output"
        failed=$((failed + 1))
    fi
done
[ "$failed" -eq 0 ]
