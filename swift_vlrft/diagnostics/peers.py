"""`vlrft doctor --peers`: the path between the nodes, before a run.

Every node is given the same list and runs at the same time. A node listens at the entry that is
its own address, and asks every other one (peer_link.py). It listens at no other address, for a
stated time; what it reads is JSON of bounded length.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import re
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from threading import Event, Thread
from typing import Any

from swift_vlrft.diagnostics.doctor import NOTE, OK, PROBLEM, Check
from swift_vlrft.diagnostics.interfaces import addresses_here, interface_checks, is_here
from swift_vlrft.diagnostics.peer_facts import Facts, clock_check, differences, facts_here
from swift_vlrft.diagnostics.peer_link import (
    READ_SECONDS,
    DataError,
    Hello,
    Measured,
    NoDoctorError,
    answer,
    ask,
    connect,
    take_data,
)

RESOLVING_SECONDS = 10.0
MEETING_SECONDS = 12.0
"""What two nodes say to each other once they are connected takes less."""
AT_A_TIME = 64
"""Connections; more are refused while these last."""


@dataclass(frozen=True, slots=True)
class Peer:
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_peers(text: str) -> list[Peer]:
    """``HOST:PORT,HOST:PORT`` or ``[IPV6]:PORT``; ValueError names the entry that is none."""
    peers = []
    for entry in text.split(","):
        parts = re.fullmatch(r"\s*(?:\[([0-9a-fA-F:.%\w]+)\]|([\w.-]+)):([0-9]{1,5})\s*", entry)
        if not parts or not 0 < int(parts[3]) < 65536:
            raise ValueError(
                f"--peers: {entry.strip()!r} is no HOST:PORT; give the address of each node and "
                "MASTER_PORT, as in 10.0.0.1:29500,10.0.0.2:29500"
            )
        peers.append(Peer(parts[1] or parts[2], int(parts[3])))
    if len(set(peers)) < len(peers):
        raise ValueError("--peers: one HOST:PORT stands there twice; name each node once")
    return peers


@dataclass
class Meeting:
    """What one node knows while it listens and asks."""

    peers: list[Peer]
    end: float
    facts: Facts
    clock: Callable[[], float]
    others: int
    """How many nodes have to come, at least."""
    place: int | None = None
    asked: dict[int, list[Check]] = field(default_factory=dict)
    came: dict[int | str, list[Check]] = field(default_factory=dict)
    """By place in the list, or by address where the node is not in it."""
    strangers: set[str] = field(default_factory=set)
    reached_from: list[str] = field(default_factory=list)
    """Own addresses of connections to others."""
    over: Event = field(default_factory=Event)


def check_peers(
    peers: list[Peer],
    wait: float = 30.0,
    facts: Facts | None = None,
    clock: Callable[[], float] = time.time,
) -> list[Check]:
    """All checks; the other nodes get ``wait`` seconds to come. A minute at most with 30."""
    addresses = _resolve(peers)
    nodes = os.environ.get("NNODES", "")
    others = max(1, len(peers) - 1, int(nodes) - 1 if nodes.isdigit() and len(peers) == 1 else 0)
    meeting = Meeting(peers, time.monotonic() + wait, facts or facts_here(), clock, others)
    checks, listener = _listen(meeting, addresses)
    asked = [n for n in range(len(peers)) if n != meeting.place]
    threads = [_start(partial(_ask, meeting, n, addresses[n], wait)) for n in asked]
    for thread in threads:
        thread.join(max(0.0, meeting.end + MEETING_SECONDS - time.monotonic()))
    if listener is not None:
        alone = len(peers) == 1
        expected = set(asked) - {n for n in asked if isinstance(addresses[n], str)}
        while time.monotonic() < meeting.end + MEETING_SECONDS * bool(meeting.came):
            if len(meeting.came) >= others if alone else expected <= meeting.came.keys():
                break
            if not meeting.came and time.monotonic() > meeting.end:
                break
            time.sleep(0.05)
    meeting.over.set()
    return [*checks, *_found(meeting, listener is not None, wait)]


def _start(work: Callable[[], None]) -> Thread:
    """A daemon: at exit Python waits for other threads."""
    thread = Thread(target=work, daemon=True)
    thread.start()
    return thread


def _resolve(peers: list[Peer]) -> list[list[Any] | str]:
    """Addresses to connect to by peer, or why there are none."""
    found: list[list[Any] | str] = [f"no answer within {RESOLVING_SECONDS:.0f} s"] * len(peers)

    def look_up(n: int, peer: Peer) -> None:
        try:
            every = socket.getaddrinfo(peer.host, peer.port, type=socket.SOCK_STREAM)
            found[n] = [(family, place) for family, *_, place in every]
        except (OSError, UnicodeError) as error:
            found[n] = str(getattr(error, "strerror", None) or error)

    end = time.monotonic() + RESOLVING_SECONDS
    for thread in [_start(partial(look_up, n, peer)) for n, peer in enumerate(peers)]:
        thread.join(max(0.0, end - time.monotonic()))
    return list(found)


def _listen(
    meeting: Meeting, addresses: list[list[Any] | str]
) -> tuple[list[Check], socket.socket | None]:
    """Listen at the first entry that is this node's; what is wrong with that."""
    taken: list[tuple[Peer, str]] = []
    for n, peer in enumerate(meeting.peers):
        known = addresses[n]
        for family, place in known if isinstance(known, list) else ():
            if not is_here(family, place[0]):
                continue
            try:
                listener = socket.create_server(place, family=family, backlog=AT_A_TIME)
            except OSError as error:
                taken.append((peer, error.strerror or str(error)))
                continue
            data = socket.create_server((place[0], 0, *place[2:]), family=family)
            meeting.place = n
            hello = Hello(1, meeting.facts, n, data.getsockname()[1])
            _start(partial(_accept, meeting, listener, partial(_answer, meeting, hello)))
            _start(partial(_accept, meeting, data, take_data))
            others = (one for other in addresses if isinstance(other, list) for one in other)
            if _loopback(place) and not all(_loopback(other) for _, other in others):
                found = f"{peer.host} is {place[0]} on this node: no other node reaches it there"
                remedy = "give its address (`ip -brief address`) to every node instead"
                return [Check("this node", PROBLEM, found, remedy)], listener
            return [Check("this node", OK, f"{peer}, {meeting.facts.host}")], listener
    if taken:
        peer, why = taken[0]
        found = f"{peer} is this node's, but cannot be listened at: {why}"
        remedy = f"`ss -ltnp 'sport = :{peer.port}'` shows who has it: stop it (an old run?), or "
        return [Check("this node", PROBLEM, found, remedy + "take another MASTER_PORT")], None
    if len(meeting.peers) == 1:
        return [Check("this node", OK, f"{meeting.facts.host}, which asks only")], None
    mine = [address for address, name in addresses_here().items() if name != "lo"]
    found = f"none of the list is an address of this node: it has {', '.join(mine) or 'none'}"
    remedy = "put this node's address into the list, the same list on every node"
    return [Check("this node", PROBLEM, found, remedy)], None


def _loopback(place: Any) -> bool:
    return ipaddress.ip_address(place[0].partition("%")[0]).is_loopback


def _accept(
    meeting: Meeting, listener: socket.socket, work: Callable[[socket.socket], None]
) -> None:
    """A thread for each connection until all is over."""
    listener.settimeout(0.1)
    running: list[Thread] = []

    def take(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            work(connection)

    with listener:
        while not meeting.over.is_set():
            try:
                connection, _ = listener.accept()
            except OSError:  # nobody came
                continue
            running = [thread for thread in running if thread.is_alive()]
            if len(running) >= AT_A_TIME:
                connection.close()
            else:
                running.append(_start(partial(take, connection)))


def _answer(meeting: Meeting, hello: Hello, connection: socket.socket) -> None:
    address = str(connection.getpeername()[0])
    try:
        theirs, measured = answer(connection, hello, meeting.clock)
    except NoDoctorError:
        meeting.strangers.add(address)
        return
    listed = theirs.place is not None and 0 <= theirs.place < len(meeting.peers)
    key: int | str = theirs.place if listed and theirs.place is not None else address
    if not listed:
        meeting.reached_from.append(str(connection.getsockname()[0]))
    mirrored = measured and Measured(measured.round_trip, -measured.ahead, measured.rate)
    name = _name(theirs.facts, meeting.peers[key] if isinstance(key, int) else address)
    meeting.came[key] = _compared(meeting, theirs.facts, name, mirrored)


def _ask(meeting: Meeting, n: int, addresses: list[Any] | str, wait: float) -> None:
    """Until the node answers, or time is over."""
    peer = meeting.peers[n]
    if isinstance(addresses, str):
        found = f"the name cannot be resolved: {addresses}"
        remedy = "give its address (`ip -brief address` there), or put the name into /etc/hosts"
        meeting.asked[n] = [Check(str(peer), PROBLEM, found, remedy)]
        return
    while True:
        for address in addresses:
            left = meeting.end - time.monotonic()
            try:
                with connect(address, min(READ_SECONDS, max(0.5, left))) as connection:
                    meeting.reached_from.append(str(connection.getsockname()[0]))
                    hello = Hello(1, meeting.facts, meeting.place)
                    facts, measured = ask(connection, hello, meeting.clock)
                meeting.asked[n] = _compared(meeting, facts, _name(facts, peer), measured)
                return
            except NoDoctorError as error:
                found = f"port {peer.port} is open, but who listens is no `vlrft doctor`: {error}"
                remedy = f"`ss -ltnp 'sport = :{peer.port}'` there: stop it, or take another port"
                meeting.asked[n] = [Check(str(peer), PROBLEM, found, remedy)]
            except DataError as error:
                meeting.asked[n] = [Check(str(peer), PROBLEM, str(error), error.remedy)]
                return
            except OSError as error:
                found, remedy = cause(error, address, wait)
                meeting.asked[n] = [Check(str(peer), PROBLEM, found, remedy)]
        if time.monotonic() > meeting.end:
            return
        time.sleep(0.5)


def cause(error: OSError, address: Any, wait: float) -> tuple[str, str]:
    """What it means that a connection fails, and what to do."""
    host, port = address[1][:2]
    number = error.errno
    if isinstance(error, TimeoutError) or number == errno.ETIMEDOUT:
        return (
            f"no answer from {host} within {wait:.0f} s: packets to port {port} are dropped",
            f"allow TCP port {port} and, for gloo and NCCL, all ports between the nodes (firewall, "
            "security group); or the address is wrong: compare with `ip -brief address` there",
        )
    if number == errno.ECONNREFUSED:
        return (
            f"{host} answers, but nobody listens at port {port} (waited {wait:.0f} s)",
            "run the same `vlrft doctor --peers` there at the same time; if it does, its firewall "
            f"rejects port {port}, or the address is another machine's",
        )
    if number == errno.ENETUNREACH:
        return (
            f"this node has no route to {host}",
            f"`ip route get {host}`: a wrong address, or no network that both nodes are in",
        )
    if number == errno.EHOSTUNREACH:
        return (
            f"no machine answers for {host} on this network, or a firewall says so",
            "a wrong address or a node that is down: compare with `ip -brief address` there",
        )
    if isinstance(error, PermissionError):
        return f"this node's own firewall forbids {host}:{port}", "`nft list ruleset`: allow it"
    return str(error.strerror or error), f"`ip route get {host}`"


def _name(facts: Facts, where: object) -> str:
    return f"{where} {facts.host}"


def _compared(meeting: Meeting, facts: Facts, name: str, measured: Measured | None) -> list[Check]:
    checks = list(differences(meeting.facts, facts, name))
    if measured is not None:
        speed = f"round trip {1000 * measured.round_trip:.1f} ms, {measured.rate / 1e6:.0f} MB/s"
        checks.insert(0, Check(name, OK, speed))
        checks.insert(1, clock_check(name, measured.ahead, measured.round_trip))
    return checks


def _found(meeting: Meeting, listened: bool, wait: float) -> list[Check]:
    """Of every other node: what this one found asking, else what came."""
    checks: list[Check] = []
    for n, peer in enumerate(meeting.peers):
        if n == meeting.place:
            continue
        late = [Check(str(peer), PROBLEM, f"no end within {wait + MEETING_SECONDS:.0f} s")]
        asked = meeting.asked.get(n, late)
        checks += asked
        reached = any(check.state == OK for check in asked)
        if listened and reached and n not in meeting.came:
            found = "this node reaches it, but it did not reach this one"
            remedy = "every node connects to every other: what it says there names the cause"
            checks.append(Check(str(peer), PROBLEM, found, remedy))
        if not reached:
            checks += meeting.came.get(n, [])
    for key in sorted(str(key) for key in meeting.came if isinstance(key, str)):
        checks += meeting.came[key]
    if listened and len(meeting.peers) == 1 and len(meeting.came) < meeting.others:
        peer = meeting.peers[0]
        found = f"{len(meeting.came)} of {meeting.others} nodes came within {wait:.0f} s"
        remedy = f"run `vlrft doctor --peers {peer}` on the others at the same time"
        if peer.host.startswith(("127.", "localhost")) or peer.host == "::1":
            remedy = f"{peer.host} is each node itself: give the address that the others see"
        checks.append(Check(str(peer), PROBLEM, found, remedy))
    for address in sorted(meeting.strangers):
        found = f"{address} connected and did not speak as `vlrft doctor`"
        checks.append(
            Check("stranger", NOTE, found, "a scan, or a run that is looking for its node 0")
        )
    for address in sorted(set(meeting.reached_from))[:1]:
        checks[:0] = interface_checks(address)
    return checks
