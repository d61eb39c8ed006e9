"""What a slow, lossy or silent link costs a run on two nodes, and that it changes no result.

    python benchmarks/two_nodes.py                      # all links; about 3 minutes each
    python benchmarks/two_nodes.py --link "20 ms, 1 %"  # one of them
    python benchmarks/two_nodes.py --table              # of what is measured, as Markdown

The two-node recipe with a tiny model on the CPU (ZeRO-3 over gloo), each node a network namespace
with one process. The link is `tc netem` where the kernel has it, else the relay of the tests
(tests/support/link_relay.py); both need root. Round trip and throughput are what `vlrft doctor
--peers` says on the same link. A step is the mean after the first one, between the lines of the
log; its bytes are those of both ways. Results are kept in benchmarks/results/two_nodes.jsonl, a
line a run, and what happened on a link that falls silent in two_nodes_events.jsonl.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# This file's folder comes first on the path, where datasets.py would be taken for the library.
HERE = Path(__file__).resolve().parent
sys.path = [p for p in sys.path if Path(p or ".").resolve() != HERE] + [str(HERE.parent / "tests")]

RESULTS = HERE / "results" / "two_nodes.jsonl"
EVENTS = HERE / "results" / "two_nodes_events.jsonl"
RECIPE = HERE.parent / "recipes" / "qwen2_5_vl_3b" / "detection_2nodes_8x80g.sh"
STEPS = 3
"""The first is left out; of the others one has a rollout (--num_iterations 2)."""
LOGGED = ("reward", "loss", "grad_norm")
PORT = 29500


@dataclass(frozen=True)
class Setting:
    delay: float = 0.0
    """Seconds, each way."""
    loss: float = 0.0
    bits: float = 0.0
    silent: float = 0.0
    """Seconds without a packet, after the first step."""
    ddp_timeout: int = 1800  # the recipe's


FIRST = "no delay"
LINKS = {
    FIRST: Setting(),
    "20 ms": Setting(0.02),
    "20 ms, 1 %": Setting(0.02, 0.01),
    "5 ms, 5 %, 100 Mbit/s": Setting(0.005, 0.05, 100e6),
    "silent for 10 s": Setting(silent=10),
    "silent for good": Setting(silent=1e9, ddp_timeout=30),
}


def asked(nodes: list[Any]) -> dict[str, float]:
    """Round trip and throughput, by `vlrft doctor --peers` on both nodes at the same time."""
    peers = ",".join(f"{node.address}:{PORT}" for node in nodes)
    command = ["vlrft", "doctor", "--peers", peers, "--wait", "60", "--json"]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "GLOO_SOCKET_IFNAME": "link0"}
    doctors = [
        subprocess.Popen(node.command(*command), stdout=subprocess.PIPE, text=True, env=environment)
        for node in nodes
    ]
    said = [doctor.communicate(timeout=180)[0] for doctor in doctors]
    trips = [
        re.fullmatch(r"round trip ([\d.]+) ms, (\d+) MB/s", check["found"])
        for check in json.loads(said[0])
    ]
    (found,) = filter(None, trips)
    return {"round_trip_ms": float(found[1]), "mb_per_s": float(found[2])}


def carried(link: Any, **settings: Any) -> dict[str, int]:
    """Frames and bytes until now, and how many were dropped, of both ways."""
    counts: dict[str, int] = link.set(**settings)
    dropped = sum(counts.pop(why, 0) for why in ("lost", "queue", "cut", "dropped"))
    return counts | {"dropped": dropped}


class Run:
    """What is seen of one from outside, with the time."""

    def __init__(self, link: Any, setting: Setting, out: Path) -> None:
        self.link, self.setting, self.out = link, setting, out
        self.began = time.monotonic()
        self.steps: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []

    def note(self, what: str, **more: Any) -> dict[str, Any]:
        event = {"s": round(time.monotonic() - self.began, 1), "what": what, **more}
        self.events.append(event)
        return event

    def watch(self, runs: list[Future]) -> None:
        """Until both nodes have ended; the link falls silent after the first step."""
        silence = self.setting.silent
        back = float("inf")
        ended: set[int] = set()
        while len(ended) < len(runs):
            for row in self.rows()[len(self.steps) :]:
                event = self.note(f"step {len(self.steps) + 1}", **carried(self.link))
                self.steps.append(event | {"at": time.monotonic(), "row": row})
            if silence and self.steps and back == float("inf"):
                self.note("the link is cut", **carried(self.link, cut=True))
                back = time.monotonic() + silence
            if time.monotonic() > back:
                self.note("the link is back", **carried(self.link, cut=False))
                silence, back = 0.0, float("inf")
            for n, run in enumerate(runs):
                if run.done() and n not in ended:
                    ended.add(n)
                    code, said = run.result().returncode, last_words(run.result().stdout)
                    self.note(f"node {n} ends", code=code, said=said, **carried(self.link))
            time.sleep(0.05)

    def rows(self) -> list[dict[str, Any]]:
        log = self.out / "logging.jsonl"
        lines = log.read_text().splitlines(keepends=True) if log.exists() else []
        rows = [json.loads(line) for line in lines if line.endswith("\n")]
        return [row for row in rows if "grad_norm" in row]

    def found(self) -> dict[str, Any]:
        """What is kept of a run with all its steps."""
        first, last = self.steps[0], self.steps[-1]
        steps = len(self.steps) - 1
        logged = [{key: step["row"].get(key) for key in LOGGED} for step in self.steps]
        weights = hashlib.sha256()
        for file in sorted((self.out / f"checkpoint-{STEPS}").glob("*.safetensors")):
            weights.update(file.read_bytes())
        return {
            "seconds_per_step": round((last["at"] - first["at"]) / steps, 2),
            "frames_per_step": (last["frames"] - first["frames"]) // steps,
            "bytes_per_step": (last["bytes"] - first["bytes"]) // steps,
            "dropped": last["dropped"],
            "logged": logged,
            "weights": weights.hexdigest()[:16],
        }


def last_words(said: str) -> str:
    """Why a node ended, in gloo's words."""
    found = re.findall(r"Timed out waiting \d+ms|Application timeout caused pair closure", said)
    found += re.findall(r"Connection (?:closed|reset) by peer", said)
    return found[0] if found else ""


def measured(name: str, model: Path, dataset: str, out: Path) -> dict[str, Any]:
    from support.recipe_run import start_two_nodes
    from support.two_namespaces import INTERFACE, Link, Netem, two_nodes

    setting = LINKS[name]
    wire, made_by = (Netem, "netem") if netem() else (Link, "relay")
    with ThreadPoolExecutor() as pool, two_nodes(wire) as (first, second, link):
        nodes = [first, second]
        link.set(delay=setting.delay, loss=setting.loss, bits=setting.bits)
        row: dict[str, Any] = {"link": name, "made_by": made_by, **asked(nodes)}
        before = carried(link)["dropped"]
        run = Run(link, setting, out)
        runs = start_two_nodes(
            *(pool, RECIPE, model, dataset, out, "--max_steps", str(STEPS)),
            *("--save_steps", str(STEPS), "--save_only_model", "true"),
            *("--ddp_timeout", str(setting.ddp_timeout)),
            *("--vllm_tensor_parallel_size", "1"),  # within a node, as in the recipe
            within=[node.command() for node in nodes],
            timeout=1200,
            MASTER_ADDR=first.address,
            GLOO_SOCKET_IFNAME=INTERFACE,
        )
        run.watch(runs)
    if setting.silent:
        with EVENTS.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps({"link": name, **event}) + "\n" for event in run.events)
    codes = [done.result().returncode for done in runs]
    row |= {"ended": codes, "steps": len(run.steps)}
    if not run.steps or (any(codes) and setting.silent < 1e9):
        raise ChildProcessError("\n".join(one.result().stdout[-6000:] for one in runs))
    if not any(codes):
        row |= run.found()
        row["dropped"] -= before
    return row


def netem() -> bool:
    from support.two_namespaces import Netem, two_nodes

    try:
        with two_nodes(Netem):
            return True
    except OSError:
        return False


def kept() -> list[dict[str, Any]]:
    if not RESULTS.exists():
        return []
    return [json.loads(line) for line in RESULTS.read_text().splitlines() if line.strip()]


def table() -> str:
    """As Markdown: medians of the runs of a link, and the ratio to the one without delay."""
    rows = [row for row in kept() if "weights" in row]
    first = [row for row in rows if row["link"] == FIRST]
    head = ["link, each way", "round trip; throughput", "packets dropped", "a step", "results"]
    lines = [head, ["---"] * len(head)]
    for name in LINKS:
        runs = [row for row in rows if row["link"] == name]
        if runs:
            lines.append([name, *_cells(runs, first)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cells(runs: list[dict[str, Any]], first: list[dict[str, Any]]) -> list[str]:
    def middle(key: str, of: list[dict[str, Any]]) -> float:
        return float(statistics.median(row[key] for row in of))

    same = all(row[key] == first[0][key] for row in runs for key in ("weights", "logged"))
    ratio = middle("seconds_per_step", runs) / middle("seconds_per_step", first)
    return [
        f"{middle('round_trip_ms', runs):.1f} ms; {middle('mb_per_s', runs):.0f} MB/s",
        f"{middle('dropped', runs):.0f}",
        f"{ratio:.1f}",
        "the same" if same else "others",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--link", action="append", choices=LINKS)
    parser.add_argument("--table", action="store_true", help="print what is measured, run nothing")
    options = parser.parse_args()
    if not options.table:
        from swift_vlrft.demo.data import write_parquet
        from swift_vlrft.demo.tasks import known_task
        from swift_vlrft.tiny.checkpoint import write_tiny

        with tempfile.TemporaryDirectory() as folder:
            model, data = Path(folder) / "qwen2_5_vl", Path(folder) / "detection"
            write_tiny("qwen2_5_vl", model)
            write_parquet(known_task("detection").make(random.Random(0), 16), data)
            for n, name in enumerate(options.link or LINKS):
                row: dict[str, Any] = {"date": time.strftime("%Y-%m-%d", time.gmtime())}
                row |= {"cores": os.cpu_count()}
                row |= measured(name, model, f"{data}:pixels", Path(folder) / f"out{n}")
                row["load"] = round(os.getloadavg()[0], 1)
                print(json.dumps(row), flush=True)
                with RESULTS.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
    print(table())


if __name__ == "__main__":
    main()
