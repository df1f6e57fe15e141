"""Two hosts (network namespaces) connected by a cable that can lose, delay, duplicate, reorder and corrupt frames.

The cable is a process that reads Ethernet frames from one host's TAP device and writes them to the other's. Needs root.
"""
import ctypes
import fcntl
import heapq
import itertools
import json
import os
import random
import select
import socket
import struct
import subprocess
import sys
import time

TUNSETIFF, IFF_TAP, IFF_NO_PI, CLONE_NEWNET = 0x400454CA, 0x2, 0x1000, 0x40000000
TCP, RESET = 6, 0x04
LONGEST_QUEUE = 0.4  # Longest wait in seconds of a frame for a slow cable; then it is dropped


class BadCable:
    """Hosts 10.78.0.1 and 10.78.0.2. `disturb` sets the faults of the cable."""

    def __init__(self):
        self.names = [f"cable{os.getpid()}h{index}" for index in range(2)]

    def __enter__(self):
        for name in self.names:
            ip("netns", "add", name)
        own, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        words = [sys.executable, __file__, str(theirs.fileno()), *self.names]
        self.process = subprocess.Popen(words, pass_fds=[theirs.fileno()])
        theirs.close()
        self.orders = own
        self.orders.recv(1)  # Its devices exist
        for index, name in enumerate(self.names):
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "addr", "add", f"{self.address(index)}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
        return self

    @staticmethod
    def address(index):
        return f"10.78.0.{index + 1}"

    def enter(self, index):
        """Returns the command that enters a host, with its own host name."""
        return ["nsenter", f"--net=/run/netns/{self.names[index]}", "unshare", "--uts", "sh", "-c",
                f'hostname h{index} && exec "$@"', "sh"]

    def disturb(self, **ways):
        """Sets the faults of the cable; faults that are not named end.

        lost, repeated, reordered, flipped, cut_off: fractions of the frames. Delay in seconds, rate in bits per second.
        closed: hosts whose frames are dropped. resets: number of next TCP segments with data to replace by resets.
        """
        self.orders.send(json.dumps(ways).encode())

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.orders.close()
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True)


def tap_in(namespace):
    """Returns the frames of its new device eth0, one per read."""
    system = ctypes.CDLL(None, use_errno=True)
    with open("/proc/self/ns/net") as own, open(f"/run/netns/{namespace}") as other:
        assert system.setns(other.fileno(), CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())
        tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH22x", b"eth0", IFF_TAP | IFF_NO_PI))
        assert system.setns(own.fileno(), CLONE_NEWNET) == 0
    return tap


def checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def as_reset(frame):
    """Returns a TCP reset at the same place in the stream; None for a frame without TCP data over IPv4."""
    if len(frame) < 54 or frame[12:14] != b"\x08\x00" or frame[23] != TCP:
        return None
    header = 14 + 4 * (frame[14] & 15)
    length = 14 + int.from_bytes(frame[16:18], "big")
    if length == header + 4 * (frame[header + 12] >> 4):
        return None
    ip_header, tcp = bytearray(frame[14:header]), bytearray(frame[header:header + 20])
    ip_header[2:4] = struct.pack("!H", len(ip_header) + len(tcp))
    ip_header[10:12] = b"\0\0"
    ip_header[10:12] = struct.pack("!H", checksum(bytes(ip_header)))
    tcp[12:14] = bytes([5 << 4, RESET])
    tcp[16:18] = b"\0\0"
    pseudo = bytes(ip_header[12:20]) + struct.pack("!BBH", 0, TCP, len(tcp))
    tcp[16:18] = struct.pack("!H", checksum(pseudo + bytes(tcp)))
    return frame[:14] + bytes(ip_header) + bytes(tcp)


class Carrier:
    """Transfers frames between both ends."""

    def __init__(self, orders, taps, chance):
        self.orders, self.taps, self.chance = orders, taps, chance
        self.ways, self.resets = {}, 0
        self.under_way, self.numbers = [], itertools.count()
        self.free = [0.0, 0.0]  # Time at which a slow cable can take the next frame of each host

    def happens(self, way):
        return self.chance.random() < self.ways.get(way, 0)

    def take(self, host, frame):
        """Takes a frame from a host."""
        if host in self.ways.get("closed", []) or self.happens("lost"):
            return
        if self.resets > 0 and (reset := as_reset(frame)):
            self.resets, frame = self.resets - 1, reset
        if self.happens("flipped"):
            place = self.chance.randrange(14, len(frame))
            frame = frame[:place] + bytes([frame[place] ^ 1 << self.chance.randrange(8)]) + frame[place + 1:]
        if self.happens("cut_off"):
            frame = frame[:self.chance.randrange(15, len(frame) + 1)]
        now = time.monotonic()
        if "rate" in self.ways:
            self.free[host] = max(now, self.free[host]) + 8 * len(frame) / self.ways["rate"]
            if self.free[host] > now + LONGEST_QUEUE:
                self.free[host] -= 8 * len(frame) / self.ways["rate"]
                return
            now = self.free[host]
        due = now + self.ways.get("delay", 0) + (self.chance.uniform(0, 0.02) if self.happens("reordered") else 0)
        for _ in range(2 if self.happens("repeated") else 1):
            heapq.heappush(self.under_way, (due, next(self.numbers), 1 - host, frame))

    def deliver(self):
        while self.under_way and self.under_way[0][0] <= time.monotonic():
            _, _, host, frame = heapq.heappop(self.under_way)
            try:
                os.write(self.taps[host], frame)
            except OSError:
                pass  # The host is not up, or its queue is full: the frame is lost

    def run(self):
        while True:
            wait = max(0, self.under_way[0][0] - time.monotonic()) if self.under_way else None
            ready = select.select([self.orders, *self.taps], [], [], wait)[0]
            if self.orders in ready:
                self.ways = json.loads(self.orders.recv(4096) or sys.exit(0))
                self.resets = self.ways.get("resets", 0)
            for host, tap in enumerate(self.taps):
                if tap in ready:
                    self.take(host, os.read(tap, 65536))
            self.deliver()


def main():
    orders = socket.socket(fileno=int(sys.argv[1]))
    taps = [tap_in(name) for name in sys.argv[2:]]
    orders.send(b"!")
    Carrier(orders, taps, random.Random(1)).run()


if __name__ == "__main__":
    main()
