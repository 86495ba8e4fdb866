#!/usr/bin/env bash
# Runs the Go program in README.md, so that what a newcomer copies works.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p bin
dir=$(mktemp -d bin/readme.XXXXXX) # inside the module: it imports the packages of this tree
trap 'rm -rf "$dir"' EXIT
awk "/^\`\`\`go\$/ {inside=1; next} /^\`\`\`/ {inside=0} inside" README.md >"$dir/main.go"
[ -s "$dir/main.go" ] || { echo "readme: README.md has no Go program" >&2; exit 1; }
[ -z "$(gofmt -l "$dir/main.go")" ] || { gofmt -d "$dir/main.go"; exit 1; }
go run "./$dir"
