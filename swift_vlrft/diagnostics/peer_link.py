"""Two nodes speak: lines of JSON of bounded length over TCP, each read and wait bounded.

    asking                         answering
    Hello (facts, place)     ->
                             <-    Hello (facts, data_port)
    Ping                     ->                                 ten times
                             <-    Clock
    bytes to data_port       ->    Received                     on a second connection
    Measured                 ->                                 what the asking node found

``data_port`` is one that the kernel chose, as for gloo and NCCL: a firewall that opens the named
port alone is found here.
"""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import msgspec

from swift_vlrft.diagnostics.peer_facts import Facts

LONGEST_LINE = 1 << 16
READ_SECONDS = 5.0
"""For one answer, or one attempt to connect."""
PINGS = 10
DATA_SECONDS = 1.0
MOST_DATA = 1 << 26

Message = TypeVar("Message", bound=msgspec.Struct)
Clock_ = Callable[[], float]


class Hello(msgspec.Struct):
    vlrft_doctor: int
    """Version of what is spoken here: 1."""
    facts: Facts
    place: int | None = None
    """In the list of peers."""
    data_port: int = 0


class Ping(msgspec.Struct):
    ping: int


class Clock(msgspec.Struct):
    time: float


class Received(msgspec.Struct):
    received: int
    seconds: float


class Measured(msgspec.Struct):
    """Seconds, and bytes a second; ``ahead``: of the answering clock before the asking one."""

    round_trip: float
    ahead: float
    rate: float


class NoDoctorError(OSError):
    """Something listens that does not speak as `vlrft doctor`."""


class DataError(OSError):
    """The named port works, what gloo and NCCL would use does not."""

    def __init__(self, found: str, remedy: str) -> None:
        super().__init__(found)
        self.remedy = remedy


class Lines:
    """Messages over one connection."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(READ_SECONDS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connection = connection
        self.rest = b""

    def send(self, message: msgspec.Struct) -> None:
        self.connection.sendall(msgspec.json.encode(message) + b"\n")

    def receive(self, kind: type[Message]) -> Message:
        """NoDoctorError where no such message comes in time."""
        end = time.monotonic() + READ_SECONDS
        while b"\n" not in self.rest:
            try:
                got = self.connection.recv(4096)
            except OSError as error:
                raise NoDoctorError(f"no answer to a message ({error})") from None
            if not got or len(self.rest) > LONGEST_LINE or time.monotonic() > end:
                raise NoDoctorError("the connection is closed" if not got else "no whole message")
            self.rest += got
        line, self.rest = self.rest.split(b"\n", 1)
        try:
            return msgspec.json.decode(line, type=kind)
        except msgspec.MsgspecError as error:
            raise NoDoctorError(f"what comes is no message of it ({error})") from None


def connect(address: Any, seconds: float = READ_SECONDS) -> socket.socket:
    """``address``: (family, sockaddr). OSError as the system gives it."""
    family, place = address
    connection = socket.socket(family, socket.SOCK_STREAM)
    try:
        connection.settimeout(seconds)
        connection.connect(place)
        if connection.getsockname() == connection.getpeername():  # the kernel's joke on free ports
            raise ConnectionRefusedError(errno.ECONNREFUSED, "nobody listens")
    except OSError:
        connection.close()
        raise
    return connection


def ask(
    connection: socket.socket, hello: Hello, clock: Clock_ = time.time
) -> tuple[Facts, Measured]:
    """The asking side. NoDoctorError, DataError, or another OSError where the connection breaks."""
    lines = Lines(connection)
    lines.send(hello)
    answer = lines.receive(Hello)
    trips = []
    for n in range(PINGS):
        sent, started = clock(), time.monotonic()
        lines.send(Ping(n))
        theirs = lines.receive(Clock).time
        trip = time.monotonic() - started
        trips.append((trip, theirs - sent - trip / 2))
    place = (connection.getpeername()[0], answer.data_port, *connection.getpeername()[2:])
    measured = Measured(*min(trips), _rate((connection.family, place)))
    lines.send(measured)
    return answer.facts, measured


def _rate(address: Any) -> float:
    """Bytes a second to the port that the kernel chose."""
    port = address[1][1]
    try:
        connection = connect(address)
    except OSError as error:
        raise DataError(
            f"this port is open, but port {port}, which the system chose, is not: "
            f"{error.strerror or error}",
            "gloo and NCCL use any port: allow all TCP ports between the nodes",
        ) from None
    with connection:
        lines = Lines(connection)
        end = time.monotonic() + DATA_SECONDS
        sent, block = 0, bytes(1 << 16)
        try:
            while sent < MOST_DATA and time.monotonic() < end:
                connection.sendall(block)
                sent += len(block)
            connection.shutdown(socket.SHUT_WR)
            got = lines.receive(Received)
        except OSError:
            raise DataError(
                f"small messages pass, {sent + len(block)} bytes do not",
                "do frame sizes differ? `ip link` shows the mtu on each node: set the smaller one; "
                "or the link loses nearly everything",
            ) from None
    return got.received / max(got.seconds, 1e-6)


def answer(
    connection: socket.socket, hello: Hello, clock: Clock_ = time.time
) -> tuple[Hello, Measured | None]:
    """The answering side; without what was measured where the asking side could not."""
    lines = Lines(connection)
    theirs = lines.receive(Hello)
    lines.send(hello)
    with suppress(OSError):
        for _ in range(PINGS):
            lines.receive(Ping)
            lines.send(Clock(clock()))
        connection.settimeout(DATA_SECONDS + 3 * READ_SECONDS)
        return theirs, lines.receive(Measured)
    return theirs, None


def take_data(connection: socket.socket) -> None:
    """Read what comes, to no use, and say how much and in what time."""
    connection.settimeout(READ_SECONDS)
    received, started = 0, time.monotonic()
    with suppress(OSError):
        while received <= MOST_DATA and (got := len(connection.recv(1 << 16))):
            received += got
        Lines(connection).send(Received(received, time.monotonic() - started))
