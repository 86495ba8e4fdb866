#!/usr/bin/env python3
"""Judge the RoCE v2 datagrams of captures with scapy.

usage: roce.py CAPTURE...

Each frame's ICRC and IPv4 header checksum are computed anew: over IPv4 by scapy's own compute_icrc, over IPv6, which
that does not know, from scapy's dissection with the fields of annex A17.3 masked. Prints a JSON list with a
{"frames": N, "ip6": N, "wrong": N, "first_wrong": "...", "sports": N} for each; exits 0 whatever it finds.
"""
import json
import sys
from zlib import crc32

from scapy.all import IP, IPv6, UDP, raw, rdpcap
from scapy.contrib.roce import BTH
from scapy.utils import checksum


def icrc6(frame):
    """The ICRC of a datagram over IPv6."""
    ip = frame[IPv6].copy()
    ip.tc, ip.fl, ip.hlim = 0xff, 0xfffff, 0xff
    ip[UDP].chksum = 0xffff
    ip[BTH].fecn, ip[BTH].becn, ip[BTH].resv6 = 1, 1, 0x3f
    return crc32(b"\xff" * 8 + raw(ip)[:-4]).to_bytes(4, "little")


def is_wrong(frame, data):
    """Whether ICRC or IPv4 header checksum are others than scapy computes, or there is a UDP checksum."""
    if not frame.haslayer(BTH) or frame[UDP].chksum != 0:
        return True
    if frame.haslayer(IPv6):
        return icrc6(frame) != data[-4:]
    at = len(frame) - len(frame[IP])
    return frame[BTH].compute_icrc(b"") != data[-4:] or checksum(data[at:at + 20]) != 0


def judge(capture):
    seen = {"frames": 0, "ip6": 0, "wrong": 0, "first_wrong": "", "sports": 0}
    ports = set()
    for packet in rdpcap(capture):
        data = bytes(packet)
        seen["frames"] += 1
        seen["ip6"] += packet.haslayer(IPv6)
        ports.add(packet[UDP].sport)
        if is_wrong(packet, data):
            seen["wrong"] += 1
            if not seen["first_wrong"]:
                seen["first_wrong"] = "frame %d: %s" % (seen["frames"], data.hex())
    seen["sports"] = len(ports)
    return seen


print(json.dumps([judge(capture) for capture in sys.argv[1:]]))
