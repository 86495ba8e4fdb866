#!/usr/bin/env python3
"""Judge the checksums of a capture with scapy.

usage: judge.py CAPTURE

Every frame is dissected, its length and checksum fields are deleted, and scapy
builds it anew: a frame whose bytes change was wrong. Bytes behind the IP length
(Ethernet padding) are left out of the comparison. Prints one line of JSON:
{"frames": N, "ip": N, "wrong": N, "first_wrong": "..."}; exits 0 whatever it finds.
"""
import json
import sys

from scapy.all import Ether, IP, IPv6, TCP, UDP, raw, rdpcap


def rebuilt(frame):
    """The frame as scapy would have built it, and how many bytes of it count."""
    copy = frame.copy()
    ip = copy.getlayer(IP) or copy.getlayer(IPv6)
    if ip is None:
        return None, 0
    if isinstance(ip, IP):
        end = len(raw(copy)) - len(raw(ip)) + frame.getlayer(IP).len
        del ip.chksum
    else:
        end = len(raw(copy)) - len(raw(ip)) + 40 + frame.getlayer(IPv6).plen
    for layer in (UDP, TCP):
        if copy.haslayer(layer):
            del copy[layer].chksum
    return raw(copy), end


def main():
    seen = {"frames": 0, "ip": 0, "wrong": 0, "first_wrong": ""}
    for packet in rdpcap(sys.argv[1]):
        data = bytes(packet)
        frame = Ether(data)
        want, end = rebuilt(frame)
        seen["frames"] += 1
        if want is None:
            continue
        seen["ip"] += 1
        if data[:end] != want[:end]:
            seen["wrong"] += 1
            if not seen["first_wrong"]:
                seen["first_wrong"] = "frame %d: %s" % (seen["frames"], data.hex())
    print(json.dumps(seen))


main()
