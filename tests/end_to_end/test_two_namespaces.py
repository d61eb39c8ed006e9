"""The two-node recipe on two nodes: network namespaces with an address each, and between them a
link that is slow and loses packets, falls silent, and comes back; then a node that dies.

What ends, when, and with what message is in docs/faults.md.
"""

import random
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.recipe_run import RECIPES, start_two_nodes
from support.swift_run import Run
from support.two_namespaces import INTERFACE, skip_without_namespaces, two_nodes

from swift_vlrft.demo.data import write_parquet
from swift_vlrft.demo.tasks import known_task

pytestmark = pytest.mark.end_to_end

RECIPE = RECIPES / "qwen2_5_vl_3b" / "detection_2nodes_8x80g.sh"
DDP_TIMEOUT = 30
"""Seconds; the recipe's own is half an hour."""
TIMED_OUT = (
    f"Timed out waiting {1000 * DDP_TIMEOUT}ms",
    "Application timeout caused pair closure",
)
"""gloo's words for the end of it."""
BUSY = 420
"""Seconds for what takes 30 on an idle machine."""


class TwoNodes:
    """Runs of the recipe in the same folder, on the same two nodes."""

    def __init__(self, nodes, pool, model, dataset, out):
        self.nodes, self.pool, self.model, self.dataset, self.out = nodes, pool, model, dataset, out

    def start(self, steps: int, resume: Path | None = None):
        flags = [] if resume is None else ["--resume_from_checkpoint", str(resume)]
        return start_two_nodes(
            *(self.pool, RECIPE, self.model, self.dataset, self.out),
            *("--max_steps", str(steps), "--save_steps", "1", "--ddp_timeout", str(DDP_TIMEOUT)),
            # Within a node, as in the recipe: vLLM's own groups have torch's timeout, 30 minutes.
            *("--vllm_tensor_parallel_size", "1"),
            *flags,
            within=[node.command() for node in self.nodes],
            MASTER_ADDR=self.nodes[0].address,
            GLOO_SOCKET_IFNAME=INTERFACE,
        )

    def saved(self) -> Path | None:
        """The last checkpoint that is whole: the trainer writes its state last."""
        found = [p.parent for p in self.out.glob("checkpoint-*/trainer_state.json")]
        return max(found, key=lambda folder: int(folder.name.split("-")[1]), default=None)

    def wait_for(self, step: int, runs) -> None:
        end = time.monotonic() + BUSY
        while not (self.out / f"checkpoint-{step}" / "trainer_state.json").exists():
            ended = [run.result().stdout[-6000:] for run in runs if run.done()]
            if ended or time.monotonic() > end:
                pytest.fail("\n\n".join(ended) or "no checkpoint in time")
            time.sleep(0.2)
        for node in self.nodes:
            node.remember()


def sizes(folder: Path) -> dict[str, int]:
    return {str(p): p.stat().st_size for p in folder.rglob("*") if p.is_file()}


def test_a_silent_link_a_lost_node_and_going_on(tiny_qwen2_5_vl, tmp_path):
    skip_without_namespaces()
    dataset = tmp_path / "detection"
    write_parquet(known_task("detection").make(random.Random(0), 16), dataset)
    out = tmp_path / "out"
    with ThreadPoolExecutor() as pool, two_nodes() as (first, second, link):
        link.set(delay=0.001, loss=0.002, bits=1e9)
        nodes = TwoNodes((first, second), pool, tiny_qwen2_5_vl, f"{dataset}:pixels", out)

        # The link falls silent: no packet, no reset. Both nodes end, after --ddp_timeout.
        runs = nodes.start(steps=99)
        nodes.wait_for(1, runs)
        link.set(cut=True)
        cut = time.monotonic()
        ended = [run.result(BUSY) for run in runs]
        assert time.monotonic() - cut < DDP_TIMEOUT + 120
        assert [run.returncode for run in ended] == [1, 1]
        for run in ended:
            assert any(said in run.stdout for said in TIMED_OUT), run.stdout[-6000:]
        link.set(cut=False)
        good = nodes.saved()
        before = sizes(good)

        # Both go on from the last good checkpoint; then the second node loses power.
        step = int(good.name.split("-")[1])
        runs = nodes.start(steps=99, resume=good)
        nodes.wait_for(step + 1, runs)
        assert sizes(good).items() <= before.items() or not good.exists()  # two are kept
        second.kill()
        killed = time.monotonic()
        ended = [run.result(BUSY) for run in runs]
        assert time.monotonic() - killed < DDP_TIMEOUT + 60
        assert ended[0].returncode == 1
        # Reset, where it was killed before it had read all that came.
        said = ("Connection closed by peer", "Connection reset by peer", *TIMED_OUT)
        assert any(words in ended[0].stdout for words in said), ended[0].stdout[-6000:]
        assert not first.processes() and not second.processes()

        # It is back.
        good = nodes.saved()
        step = int(good.name.split("-")[1])
        ended = [run.result(BUSY) for run in nodes.start(steps=step + 1, resume=good)]
        assert [run.returncode for run in ended] == [0, 0], ended[0].stdout[-6000:]
    rows = [row for row in Run(ended[0].stdout, out).rows if "grad_norm" in row]
    assert rows[-1]["global_step/max_steps"] == f"{step + 1}/{step + 1}"
    assert (out / f"checkpoint-{step + 1}" / "trainer_state.json").exists()
