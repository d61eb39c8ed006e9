"""The wire between two network namespaces: a process that carries Ethernet frames from one to the
other, late, paced and with losses.

    python link_relay.py NAMESPACE NAMESPACE

Needs root and /dev/net/tun, and no kernel module: `tc netem` is missing in many kernels. Both ends
are called `link0`. Settings come as lines of JSON on the standard input:
{"delay": seconds each way, "loss": share of frames, "bits": a second, "cut": drop everything,
"firewall": the only TCP port from 20,000 on at which connections may begin}.
Each is answered by what was carried and dropped so far, both ways together. The relay ends when its
input does, and the two ends with it.
"""

import ctypes
import fcntl
import heapq
import json
import os
import random
import select
import struct
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

TUNSETIFF = 0x400454CA  # <linux/if_tun.h>
IFF_TAP, IFF_NO_PI = 0x0002, 0x1000
LONGEST_QUEUE = 0.2
"""Seconds of frames that wait for the wire; later ones are dropped, as a switch does."""
FRAME = 65_536
RNG = random.Random(0)


class Settings:
    delay = 0.0
    loss = 0.0
    bits = 0.0
    """Per second; 0: as fast as it goes."""
    cut = False
    firewall = 0
    """0: none."""


def end_in(namespace: str) -> int:
    """A device ``link0`` in the namespace; the descriptor through which its frames pass."""
    with open("/proc/self/ns/net") as outside, open(f"/run/netns/{namespace}") as inside:
        enter(inside.fileno())
        end = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(end, TUNSETIFF, struct.pack("16sH22x", b"link0", IFF_TAP | IFF_NO_PI))
        enter(outside.fileno())  # the wire is part of no node, and is not lost with one
    return end


def enter(namespace: int) -> None:
    if ctypes.CDLL(None, use_errno=True).setns(namespace, 0):
        raise OSError(ctypes.get_errno(), "cannot enter a network namespace")


def begins(frame: bytes) -> int:
    """The TCP port from 20,000 on at which a frame asks for a connection, over IPv4; else 0."""
    if frame[12:14] != b"\x08\x00" or frame[23] != 6:
        return 0
    tcp = frame[14 + 4 * (frame[14] & 15) :]
    port, flags = int.from_bytes(tcp[2:4]), tcp[13]
    return port if flags & 0x12 == 0x02 and port >= 20_000 else 0  # SYN without ACK


@dataclass
class Counts:
    frames: int = 0
    bytes: int = 0
    lost: int = 0
    """By ``loss``."""
    queue: int = 0
    """Came faster than the wire sends, or than the other end takes."""
    cut: int = 0


class Direction:
    """One way along the wire."""

    def __init__(self, source: int, target: int, counts: Counts) -> None:
        self.source, self.target, self.counts = source, target, counts
        self.free = 0.0
        """When the wire has sent what was given to it."""
        self.flying: list[tuple[float, int, bytes]] = []
        self.count = 0

    def take(self, settings: Settings) -> None:
        try:
            frame = os.read(self.source, FRAME)
        except BlockingIOError:
            return
        now = time.monotonic()
        self.free = max(now, self.free)
        if settings.cut or (settings.firewall and begins(frame) not in (0, settings.firewall)):
            self.counts.cut += 1
        elif RNG.random() < settings.loss:
            self.counts.lost += 1
        elif self.free - now > LONGEST_QUEUE:
            self.counts.queue += 1
        else:
            self.send(frame, settings)

    def send(self, frame: bytes, settings: Settings) -> None:
        self.free += 8 * len(frame) / settings.bits if settings.bits else 0.0
        self.count += 1
        heapq.heappush(self.flying, (self.free + settings.delay, self.count, frame))

    def deliver(self) -> float | None:
        """Write what has arrived; the seconds until the next frame does."""
        while self.flying:
            left = self.flying[0][0] - time.monotonic()
            if left > 0:
                return left
            frame = heapq.heappop(self.flying)[2]
            try:
                os.write(self.target, frame)
            except OSError:  # the other end is not up, or its queue is full
                self.counts.queue += 1
                continue
            self.counts.frames += 1
            self.counts.bytes += len(frame)
        return None


def main() -> None:
    first, second = (end_in(namespace) for namespace in sys.argv[1:3])
    counts = Counts()
    ways = {first: Direction(first, second, counts), second: Direction(second, first, counts)}
    settings = Settings()
    print(json.dumps(asdict(counts)), flush=True)
    while True:
        left = [way.deliver() for way in ways.values()]
        waits = min((seconds for seconds in left if seconds is not None), default=None)
        ready, _, _ = select.select([0, *ways], [], [], waits)
        for one in ready:
            if one in ways:
                ways[one].take(settings)
            elif line := sys.stdin.readline():
                for name, value in json.loads(line).items():
                    setattr(settings, name, value)
                print(json.dumps(asdict(counts)), flush=True)
            else:
                return


if __name__ == "__main__":
    os.chdir(Path("/"))
    main()
