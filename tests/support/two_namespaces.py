"""Two nodes on one machine: network namespaces with an address each, and a link between them."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ADDRESSES = ("10.77.0.1", "10.77.0.2")
INTERFACE = "link0"
RELAY = Path(__file__).with_name("link_relay.py")


class Link:
    """The wire (link_relay.py): its settings may change while it is used."""

    def __init__(self, namespaces: list[str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(RELAY), *namespaces],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answer()

    def set(self, **settings: float) -> dict[str, int]:
        """``delay`` in seconds each way, ``loss`` a share, ``bits`` a second, ``cut``; what was
        carried and dropped until then.
        """
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(settings) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, int]:
        assert self.process.stdout is not None
        if not (line := self.process.stdout.readline()):
            raise OSError("the relay ended")
        return json.loads(line)

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


class Netem:
    """The same made by the kernel, where it has the module: `tc netem` on both ends of a veth."""

    def __init__(self, namespaces: list[str]) -> None:
        self.namespaces, self.settings = namespaces, {"delay": 0.0, "loss": 0.0, "bits": 0.0}
        first, second = namespaces
        command = ["ip", "link", "add", INTERFACE, "netns", first, "type", "veth", "peer"]
        command += ["name", INTERFACE, "netns", second]
        subprocess.run(command, check=True)
        try:
            self.set()
        except subprocess.CalledProcessError as error:
            raise OSError("the kernel has no netem") from error

    def set(self, **settings: float) -> dict[str, int]:
        self.settings |= settings
        loss = 1.0 if self.settings.get("cut") else self.settings["loss"]
        words = ["delay", f"{1000 * self.settings['delay']}ms", "loss", f"{100 * loss}%"]
        words += ["limit", "10000"]
        if self.settings["bits"]:
            words += ["rate", f"{self.settings['bits']:.0f}bit"]
        counts = {"frames": 0, "bytes": 0, "dropped": 0}
        for name in self.namespaces:
            tc = ["ip", "netns", "exec", name, "tc"]
            change = [*tc, "qdisc", "replace", "dev", INTERFACE, "root", "netem", *words]
            subprocess.run(change, check=True, capture_output=True)
            shown = [*tc, "-s", "-j", "qdisc", "show", "dev", INTERFACE]
            (found,) = json.loads(subprocess.run(shown, check=True, capture_output=True).stdout)
            counts["frames"] += found["packets"]
            counts["bytes"] += found["bytes"]
            counts["dropped"] += found["drops"]
        return counts

    def close(self) -> None:
        """It ends with the namespaces."""


class Node:
    """One namespace."""

    def __init__(self, name: str, address: str) -> None:
        self.name, self.address = name, address
        self.shared: set[Path] = set()

    def command(self, *words: str) -> list[str]:
        """The same command inside."""
        return ["nsenter", f"--net=/run/netns/{self.name}", *words]

    def run(self, *words: str) -> None:
        subprocess.run(self.command(*words), check=True)

    def processes(self) -> list[int]:
        pids = subprocess.run(["ip", "netns", "pids", self.name], capture_output=True, text=True)
        return [int(pid) for pid in pids.stdout.split()]

    def remember(self) -> None:
        """Which files of /dev/shm its processes have: what is killed leaves them behind."""
        for pid in self.processes():
            with contextlib.suppress(OSError):
                maps = Path(f"/proc/{pid}/maps").read_text()
                self.shared |= {Path(p) for p in re.findall(r"(/dev/shm/\S+)$", maps, re.M)}

    def kill(self, seconds: float = 30.0) -> None:
        """SIGKILL to every process inside, as when a node loses power, until none is left."""
        self.remember()
        end = time.monotonic() + seconds
        while (pids := self.processes()) and time.monotonic() < end:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.1)


def missing() -> str:
    """Why this machine cannot have two namespaces; empty if it can."""
    if os.geteuid():
        return "network namespaces and /dev/net/tun need root"
    try:
        with two_nodes():
            return ""
    except (OSError, subprocess.CalledProcessError) as error:
        return f"no network namespaces here: {error}"


def skip_without_namespaces() -> None:
    if why := missing():
        pytest.skip(why)


@contextlib.contextmanager
def two_nodes(wire: type = Link) -> Iterator[tuple[Node, Node, Link]]:
    """Two nodes and the link; nothing of them is left afterwards."""
    nodes = [Node(f"vlrft-{os.getpid()}-{n}", address) for n, address in enumerate(ADDRESSES)]
    link = None
    try:
        for node in nodes:
            subprocess.run(["ip", "netns", "add", node.name], check=True, capture_output=True)
        link = wire([node.name for node in nodes])
        for node in nodes:
            node.run("ip", "address", "add", f"{node.address}/24", "dev", INTERFACE)
            # Large frames, as between nodes of a cluster: the relay takes its time for each.
            node.run("ip", "link", "set", INTERFACE, "mtu", "9000", "up")
            node.run("ip", "link", "set", "lo", "up")
        yield nodes[0], nodes[1], link
    finally:
        for node in nodes:
            node.kill()
        if link is not None:
            link.close()
        for node in nodes:
            subprocess.run(["ip", "netns", "delete", node.name], capture_output=True)
            for left in node.shared:
                left.unlink(missing_ok=True)
