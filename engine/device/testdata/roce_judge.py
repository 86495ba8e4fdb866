#!/usr/bin/env python3
"""Judge the RoCE v2 frames of a capture with scapy.

usage: roce_judge.py CAPTURE

scapy's RoCE layer dissects each frame. Of an IPv4 frame the ICRC is deleted and
computed anew (scapy has no ICRC for IPv6). Prints one line of JSON for each
frame: {"opcode", "solicited", "pad", "pkey", "dqpn", "psn", "icrc": "right",
"wrong" or "unknown"}.
"""
import json
import sys

from scapy.all import Ether, IP, load_contrib, raw, rdpcap

load_contrib("roce")
from scapy.contrib.roce import BTH  # noqa: E402


def main():
    for packet in rdpcap(sys.argv[1]):
        data = bytes(packet)
        frame = Ether(data)
        bth = frame.getlayer(BTH)
        icrc = "unknown"
        if frame.haslayer(IP):
            copy = Ether(data)
            del copy[BTH].icrc
            icrc = "right" if raw(copy) == data else "wrong"
        print(json.dumps({"opcode": bth.opcode, "solicited": bool(bth.solicited), "pad": bth.padcount, "pkey": bth.pkey,
                          "dqpn": bth.dqpn, "psn": bth.psn, "icrc": icrc}))


main()
