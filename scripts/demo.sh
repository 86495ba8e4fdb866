#!/usr/bin/env bash
# Shows pktgen on the in-process wire, which needs no interface and no privilege: demo.sh PKTGEN DIR.
# It leaves a report of each run in DIR and nothing else.
set -euo pipefail

pktgen=${1:?path of pktgen}
dir=${2:?directory for the reports}
mkdir -p "$dir"
rm -f "$dir"/max.json "$dir"/rate.json

show() {
    echo
    echo "\$ pktgen $*"
    "$pktgen" "$@"
}

echo "One process sends and receives; each frame carries a sequence number and the time it was due."
show tx loop: --rx loop: -n 2000000 -r max -s 64 --latency all \
    --assert 'loss==0' --report "$dir/max.json"
show tx loop: --rx loop: -n 500000 -r 100kpps -s 64-1518 --flows 16 --latency all \
    --assert 'loss==0' --report "$dir/rate.json"

echo
echo "Both runs lost nothing. Reports: $dir/max.json $dir/rate.json"
