#!/usr/bin/env bash
# Installs what the tests use beyond Go, on Debian and its relatives, when it may: as root, or where sudo asks nothing.
# Without them the tests that need them are skipped and say so, so this script only fails where it must not: when
# DEPS_REQUIRED=1. "deps.sh vm" adds what the virtual machine and its RDMA peers need.
set -euo pipefail

# command or file that must be there : package that brings it
wanted=(
    ip:iproute2
    tc:iproute2
    ethtool:ethtool
    tshark:tshark
    capinfos:wireshark-common
    /usr/lib/python3/dist-packages/scapy:python3-scapy
    /usr/include/infiniband/mlx5dv.h:libibverbs-dev
    gcc:gcc
    /usr/include/stdlib.h:libc6-dev # gcc only recommends it
)
if [ "${1:-}" = vm ]; then
    wanted+=(
        qemu-system-x86_64:qemu-system-x86
        /var/lib/dpkg/info/busybox-static.list:busybox-static # the command may be a busybox that is not static
        ibv_ud_pingpong:ibverbs-utils
        /etc/libibverbs.d/rxe.driver:ibverbs-providers
        ib_send_lat:perftest
        rdma:iproute2
    )
fi

missing=()
for pair in "${wanted[@]}"; do
    what=${pair%%:*}
    case $what in
        /*) [ -e "$what" ] || missing+=("${pair##*:}") ;;
        *) PATH=$PATH:/usr/sbin:/sbin command -v "$what" >/dev/null || missing+=("${pair##*:}") ;;
    esac
done
# What the caller would like and can do without, as "what:package" in DEPS_OPTIONAL.
optional=()
for pair in ${DEPS_OPTIONAL:-}; do
    command -v "${pair%%:*}" >/dev/null || optional+=("${pair##*:}")
done
# The machine's kernel is a package, too, which the test downloads and does not install: apt has to know it.
unknown=
if [ "${1:-}" = vm ] && command -v apt-cache >/dev/null; then
    apt-cache show linux-image-amd64 >/dev/null 2>&1 || unknown=linux-image-amd64
fi
[ ${#missing[@]} -gt 0 ] || [ ${#optional[@]} -gt 0 ] || [ -n "$unknown" ] || exit 0

give_up() {
    echo "deps: $1; missing: ${missing[*]:-} ${optional[*]:-} $unknown; tests that need them will be skipped" >&2
    [ ${#missing[@]} -gt 0 ] && [ "${DEPS_REQUIRED:-0}" = 1 ] && exit 1
    exit 0
}

as_root=()
if [ "$(id -u)" != 0 ]; then
    sudo -n true 2>/dev/null || give_up "not root and sudo wants a password"
    as_root=(sudo -n)
fi
command -v apt-get >/dev/null || give_up "no apt-get here"

# debconf must not ask whether ordinary users may capture (tshark does), and nothing may read from the terminal.
apt() {
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 \
        -o DPkg::Lock::Timeout=120 "$@" </dev/null >/dev/null
}
echo "deps: installing ${missing[*]:-} ${optional[*]:-}${unknown:+, looking for $unknown}" >&2
apt update || echo "deps: apt-get update failed, trying with the lists that are here" >&2
for package in "${optional[@]}"; do
    apt install -y --no-install-recommends "$package" || echo "deps: $package could not be installed (optional)" >&2
done
[ ${#missing[@]} -eq 0 ] || apt install -y --no-install-recommends "${missing[@]}" || give_up "apt-get install failed"
