"""vlrft_math's process: what explodes is ended in time, and the next pair is compared as before."""

import multiprocessing
import subprocess
import sys
import threading

import pytest
from support.hostile import answered

from swift_vlrft.rewards import REWARDS, mathematics

EXPLODES = ["(10^{9})!", "\\sum_{n=1}^{10^{12}} n!", "x^{10^{9}}(1+x)^{10^{7}}"]


def scores(*texts, gold="5"):
    return REWARDS["vlrft_math"]([answered(text) for text in texts], [gold] * len(texts))


@pytest.mark.slow
@pytest.mark.parametrize("text", EXPLODES)
def test_what_explodes_scores_zero_and_the_worker_is_replaced(text, caplog, capfd, monkeypatch):
    """Counted, not timed: a pair is asked once, and a worker gets its seconds once."""
    monkeypatch.setattr(mathematics, "SECONDS", 1.0)
    mathematics._equal.cache_clear()
    scores("5")
    asked, ended = [], []
    asks, end = mathematics.WORKER.asks, mathematics.WORKER.end
    monkeypatch.setattr(mathematics.WORKER, "asks", lambda *t: asked.append(t) or asks(*t))
    monkeypatch.setattr(mathematics.WORKER, "end", lambda: ended.append(1) or end())
    assert scores(text) + scores(text) == [0.0, 0.0]
    assert asked == [("5", text)] and len(ended) <= 1
    assert scores("\\frac{15}{3}", "6", gold="5") == [1.0, 0.0] and len(ended) <= 1
    assert not caplog.messages and capfd.readouterr() == ("", "")


@pytest.mark.slow
def test_it_works_in_threads_and_in_a_fork():
    found = []
    threads = [
        threading.Thread(target=lambda n=n: found.append(scores(f"{n}/1", gold=str(n))))
        for n in range(11, 19)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[1.0]] * 8
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(_in_a_fork, range(21, 25)) == [1.0] * 4
    assert scores("20/4") == [1.0]


def _in_a_fork(n):
    return scores(f"{2 * n}/2", gold=str(n))[0]


@pytest.mark.slow
def test_the_worker_imports_no_torch_and_ends_with_its_parent():
    code = (
        "from swift_vlrft.rewards import REWARDS, mathematics\n"
        "print(REWARDS['vlrft_math'](['\\\\boxed{1/2}'], ['0.5']))\n"
        "print(mathematics.WORKER._process.pid)\n"
        "maps = open(f'/proc/{mathematics.WORKER._process.pid}/maps').read()\n"
        "assert 'libtorch' not in maps and 'libcuda' not in maps\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    score, pid = done.stdout.split("\n")[:2]
    assert score == "[1.0]"
    alive = subprocess.run(["ps", "-p", pid], capture_output=True, check=False)
    assert alive.returncode != 0
