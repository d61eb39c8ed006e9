"""`vlrft doctor --peers`: why two nodes do not work together is named, in bounded time."""

import json
import os
import re
import socket
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import msgspec
import pytest
from support.swift_run import free_port
from support.two_namespaces import INTERFACE, skip_without_namespaces, two_nodes
from typer.testing import CliRunner

from swift_vlrft.cli import app
from swift_vlrft.diagnostics.doctor import PROBLEM
from swift_vlrft.diagnostics.peer_facts import Facts
from swift_vlrft.diagnostics.peers import Peer, check_peers, parse_peers

FACTS = Facts("node", "3.11.7", "none", {"torch": "2.13.0", "ms-swift": "4.6.0"}, {})
WAIT = 20.0
"""On a busy machine; where all is well nobody waits that long."""


def loopback(*ports):
    return [Peer("127.0.0.1", int(port)) for port in ports]


def meet(peers, *, facts=FACTS, clock=time.time, wait=WAIT):
    """Two nodes, the second one with facts and a clock of its own; what each finds."""
    with ThreadPoolExecutor() as pool:
        runs = [
            pool.submit(check_peers, peers, wait, FACTS),
            pool.submit(check_peers, peers, wait, facts, clock),
        ]
        return [run.result() for run in runs]


def problems(checks):
    return [check for check in checks if check.state == PROBLEM]


@pytest.fixture
def two():
    return loopback(free_port(), free_port())


def test_two_nodes_that_agree(two):
    for found in meet(two):
        assert not problems(found)
        assert any("round trip" in check.found and "MB/s" in check.found for check in found)


def test_a_node_that_is_not_in_the_list_is_compared_too():
    (peer,) = loopback(free_port())
    other = msgspec.structs.replace(FACTS, packages={"torch": "2.12.0", "ms-swift": "4.6.0"})
    with ThreadPoolExecutor() as pool:
        first = pool.submit(check_peers, [peer], WAIT, FACTS)
        time.sleep(0.5)  # the first one to come listens
        # The loopback is every node's: this one is kept from listening by the port that is taken.
        second = check_peers([peer, Peer("127.0.0.1", int(free_port()))], 1, other)
    found = [check.found for check in problems(first.result())]
    assert found == ["2.13.0 here, 2.12.0 there"]
    assert "2.12.0 here, 2.13.0 there" in [check.found for check in second]


@pytest.mark.parametrize(
    ("change", "what", "here", "there"),
    [
        ({"packages": {"torch": "2.12.0", "ms-swift": "4.6.0"}}, "torch", "2.13.0", "2.12.0"),
        ({"packages": {"torch": "2.13.0"}}, "ms-swift", "4.6.0", "none"),
        ({"python": "3.12.1"}, "Python", "3.11.7", "3.12.1"),
        ({"variables": {"MASTER_ADDR": "10.0.0.9"}}, "MASTER_ADDR", "not set", "10.0.0.9"),
        ({"variables": {"MAX_PIXELS": "401408"}}, "MAX_PIXELS", "not set", "401408"),
    ],
)
def test_what_differs_is_named_on_both_nodes(two, change, what, here, there):
    first, second = meet(two, facts=msgspec.structs.replace(FACTS, **change))
    (one,), (other,) = problems(first), problems(second)
    assert one.what.endswith(f" {what}") and other.what.endswith(f" {what}")
    assert one.found == f"{here} here, {there} there" and one.remedy
    assert other.found == f"{there} here, {here} there"


def test_two_first_nodes(two):
    same = msgspec.structs.replace(FACTS, variables={"NODE_RANK": "0"})
    with ThreadPoolExecutor() as pool:
        runs = [pool.submit(check_peers, two, WAIT, same) for _ in two]
        for run in runs:
            (found,) = problems(run.result())
            assert found.what.endswith("NODE_RANK") and "0 on both" in found.found


@pytest.mark.parametrize("skew", [120.0, -3600.0])
def test_clocks_that_differ(two, skew):
    found = [problems(checks) for checks in meet(two, clock=lambda: time.time() + skew)]
    sides = [("ahead of" if skew > 0 else "behind"), ("behind" if skew > 0 else "ahead of")]
    for (check,), side in zip(found, sides, strict=True):
        assert check.what.endswith("clock") and f" s {side} this node" in check.found
        assert abs(float(check.found.split()[0]) - abs(skew)) < 1.5


def test_nobody_listens(two):
    checks = check_peers(two, 1.0, FACTS)
    (found,) = problems(checks)
    assert (
        f"nobody listens at port {two[1].port}" in found.found
        and "at the same time" in found.remedy
    )


def test_a_name_that_cannot_be_resolved():
    started = time.monotonic()
    (found,) = problems(check_peers([Peer("a..b", 29500)], 30.0, FACTS))
    assert "cannot be resolved" in found.found and "/etc/hosts" in found.remedy
    assert time.monotonic() - started < 20  # no use in waiting


def test_localhost_is_each_node_itself():
    (found,) = problems(check_peers([Peer("localhost", int(free_port()))], 1.0, FACTS))
    assert "0 of 1 nodes" in found.found and "each node itself" in found.remedy


def test_the_port_is_taken_by_a_program_that_is_no_doctor():
    """An old run on MASTER_PORT: named where it is, and from the other node."""
    with socket.create_server(("127.0.0.1", 0)) as old:

        def speak():
            with suppress(OSError):  # until it is closed
                while True:
                    connection, _ = old.accept()
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                    connection.close()

        threading.Thread(target=speak, daemon=True).start()
        port = old.getsockname()[1]
        found = problems(check_peers(loopback(port), 1.0, FACTS))
    assert "cannot be listened at" in found[0].found and "MASTER_PORT" in found[0].remedy
    assert "no `vlrft doctor`" in found[1].found


@pytest.mark.slow
def test_a_port_that_takes_and_never_answers():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        started = time.monotonic()
        found = problems(check_peers(loopback(silent.getsockname()[1]), 1.0, FACTS))
        assert time.monotonic() - started < 20
    assert "no `vlrft doctor`" in found[-1].found


HELLO = {"vlrft_doctor": 1, "facts": msgspec.to_builtins(FACTS)}
STRANGERS = {
    "nothing": b"",
    "a request": b"GET / HTTP/1.1\r\n\r\n",
    "no end": b"x" * 300_000,
    "deep": b"[" * 60_000 + b"\n",
    "no text": bytes(range(256)) + b"\n",
    "a pickle": b"cos\nsystem\n(S'true'\ntR.\n",
    "a list": b"[1]\n",
    "many facts": json.dumps(
        HELLO | {"facts": HELLO["facts"] | {"packages": {str(n): "1" for n in range(100)}}}
    ).encode()
    + b"\n",
    "a long fact": json.dumps(HELLO | {"facts": HELLO["facts"] | {"host": "x" * 9000}}).encode()
    + b"\n",
}


def test_strangers_are_noted_and_disturb_nobody(two):
    """The meeting goes on beside all of them."""
    first = two[0]
    with ThreadPoolExecutor() as pool:
        listening = pool.submit(check_peers, two, WAIT, FACTS)
        for sent in STRANGERS.values():
            end = time.monotonic() + WAIT
            while time.monotonic() < end:
                try:
                    stranger = socket.create_connection((first.host, first.port), 5)
                    break
                except ConnectionRefusedError:
                    time.sleep(0.05)
            try:
                stranger.sendall(sent)
                stranger.shutdown(socket.SHUT_WR)
                while stranger.recv(65536):
                    pass
            except OSError:
                pass
            stranger.close()
        assert not problems(check_peers(two, WAIT, FACTS))
    found = listening.result()
    assert not problems(found)
    assert [check.state for check in found if check.what == "stranger"] == ["note"]


def test_what_a_node_says_is_printed_without_escapes(two, monkeypatch):
    name = "\x1b]0;owned\x07[red]x"
    monkeypatch.setattr("swift_vlrft.diagnostics.peers.facts_here", lambda: FACTS)
    text = ",".join(map(str, two))
    with ThreadPoolExecutor() as pool:
        other = msgspec.structs.replace(FACTS, host=name)
        pool.submit(check_peers, two, WAIT, other)
        shown = CliRunner().invoke(app, ["doctor", "--peers", text, "--wait", str(WAIT)])
    assert "owned" in shown.output and "[red]x" in shown.output
    assert not {"\x1b", "\x07"} & set(shown.output)


def test_no_secret_is_sent(monkeypatch):
    from swift_vlrft.diagnostics.peer_facts import facts_here

    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setenv("WANDB_API_KEY", "secret")
    monkeypatch.setenv("MASTER_PORT", "29500")
    sent = msgspec.json.encode(facts_here()).decode()
    assert "secret" not in sent and "29500" in sent
    assert len(sent) < 4096


@pytest.mark.parametrize(
    "text",
    ["", "10.0.0.1", "10.0.0.1:", "10.0.0.1:0", "10.0.0.1:65536", "10.0.0.1:29500,"]
    + ["http://10.0.0.1:29500", "user@host:29500", "a b:29500", "::1:29500", "a:1,a:1", "a:٣"],
)
def test_a_list_that_is_none(text):
    shown = CliRunner().invoke(app, ["doctor", "--peers", text])
    assert shown.exit_code == 2 and "--peers: " in shown.output


def test_lists():
    assert parse_peers(" a-b.c:29500, [fe80::1%eth0]:1") == [
        Peer("a-b.c", 29500),
        Peer("fe80::1%eth0", 1),
    ]


def doctor(node, peers, *, wait=6, **variables):
    return subprocess.Popen(
        node.command("vlrft", "doctor", "--peers", peers, "--wait", str(wait), "--json"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"GLOO_SOCKET_IFNAME": INTERFACE} | variables,
    )


def ended(process, code):
    printed = process.communicate(timeout=120)[0]
    assert process.returncode == code, printed
    return {check["found"]: check["remedy"] for check in json.loads(printed) if check["remedy"]}


@pytest.mark.slow
def test_what_is_wrong_with_a_path_between_two_nodes():
    """Real addresses, a firewall, a link that drops everything."""
    skip_without_namespaces()
    with two_nodes() as (first, second, link):
        here, there = first.address, second.address
        both = f"{here}:29500,{there}:29500"
        for run in [doctor(first, both, wait=30), doctor(second, both, wait=30)]:
            assert not ended(run, 0)

        cases = {
            "no route": doctor(first, "10.99.0.9:29502"),
            "cannot be resolved": doctor(first, "no-such-node.invalid:29502"),
            # The first where the system gives up asking for the address before we do.
            "no (machine answers for|answer from) 10.77.0.9": doctor(first, "10.77.0.9:29502"),
            f"nobody listens at port {29502}": doctor(first, f"{there}:29502"),
            "none of the list": doctor(first, f"{there}:29502,10.99.0.9:1"),
            "the other nodes are reached through": doctor(
                second, f"{here}:29503", wait=40, GLOO_SOCKET_IFNAME="eth9"
            ),
        }
        alone = doctor(first, f"{here}:29503", wait=40)
        for said, run in cases.items():
            assert any(re.search(said, found) for found in ended(run, 1)), said
        ended(alone, 0)

        link.set(firewall=29501)
        blocked = f"{here}:29501,{there}:29501"
        for run in [doctor(first, blocked, wait=30), doctor(second, blocked, wait=30)]:
            assert any("this port is open, but port" in text for text in ended(run, 1))
        link.set(firewall=0)

        link.set(cut=True)
        started = time.monotonic()
        for run in [doctor(first, both), doctor(second, both)]:
            assert any("are dropped" in text for text in ended(run, 1))
        assert time.monotonic() - started < 60
