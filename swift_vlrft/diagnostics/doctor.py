"""Is this machine ready? Each check gives what it found, and a remedy if something is wrong.

problem  ms-swift 4.5.3: 4.6 is needed      pip install 'ms-swift>=4.6,<4.7'
note     huggingface.co does not answer     HF_ENDPOINT names a mirror; HF_HUB_OFFLINE=1 ...

Every check has a time limit, and all run in parallel.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from threading import Thread
from time import monotonic

from swift_vlrft.files.shipped import shipped_file
from swift_vlrft.recipe.gpus import installed_gpus

OK, NOTE, PROBLEM = "ok", "note", "problem"
GIB = 2**30

REQUIRED = ("ms-swift", "torch", "torchvision", "transformers", "trl", "peft", "datasets")
FORGOTTEN = {
    "msgspec": "ms-swift's GRPO imports it without requiring it",
    "qwen-vl-utils": "every Qwen-VL model needs it",
}
ENGINES = {
    "vllm": "recipes with --use_vllm true need it",
    "deepspeed": "recipes with --deepspeed need it",
}
ALSO = ("accelerate", "modelscope", "numpy", "math-verify")
MODELSCOPE = "https://www.modelscope.cn"
REMEDIES = {
    "huggingface.co": "HF_ENDPOINT names a mirror; or download elsewhere and give local folders as "
    "--model and --dataset, with HF_HUB_OFFLINE=1",
    "modelscope.cn": "USE_HF=1 takes Hugging Face instead; or give local folders as --model and "
    "--dataset",
}
LEAST_SHARED = 1 * GIB
LEAST_DISK = 20 * GIB


@dataclass(frozen=True, slots=True)
class Check:
    """What one check found; ``remedy`` is empty if nothing is wrong."""

    what: str
    state: str
    found: str
    remedy: str = ""


def run_checks(seconds: float = 3.0) -> list[Check]:
    """All checks, in a fixed order.

    ``seconds`` is the limit of each hub; an import, which reads gigabytes from a cold disk, gets
    twenty times that.
    """
    slow: list[tuple[str, Callable[[], Check], float]] = [
        ("huggingface.co", partial(_hub, "huggingface.co", _hf_endpoint(), seconds), seconds),
        ("modelscope.cn", partial(_hub, "modelscope.cn", MODELSCOPE, seconds), seconds),
    ]
    for name in ENGINES:
        if _version(name):
            slow.append((name, partial(_imports, name, 20 * seconds), 20 * seconds))
    done: dict[str, Check] = {}

    def run(name: str, check: Callable[[], Check]) -> None:
        done[name] = check()

    waiting = []
    for name, check, limit in slow:
        # Daemons: at exit Python waits for other threads, however long a hub takes.
        thread = Thread(target=run, args=(name, check), daemon=True)
        thread.start()
        waiting.append((name, thread, monotonic() + limit + 1))
    checks = [*_python(), *_packages(), *_gpus(20 * seconds), *_disk(), *_shared_memory()]
    for name, thread, end in waiting:
        thread.join(max(0.0, end - monotonic()))
        late = Check(name, NOTE, "no answer in time", REMEDIES.get(name, ""))
        checks.append(done.get(name, late))
    return checks


def _python() -> Iterator[Check]:
    version = ".".join(map(str, sys.version_info[:3]))
    old = sys.version_info < (3, 11)
    yield Check(
        "Python", PROBLEM if old else OK, version, "use Python 3.11 or newer" if old else ""
    )


def tested_set() -> dict[str, str]:
    """The versions that the tests ran with, by package; the GPU set if there is a driver."""
    name = "gpu.txt" if shutil.which("nvidia-smi") else "cpu.txt"
    try:
        text = shipped_file("requirements", name).read_text()
    except FileNotFoundError:
        return {}
    lines = [line.split("#")[0].strip() for line in text.splitlines()]
    return dict(line.split("==", 1) for line in lines if "==" in line)


def _version(package: str) -> str | None:
    for name in (package, f"{package}-cpu"):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return None


def _packages() -> Iterator[Check]:
    tested = tested_set()
    for package in (*REQUIRED, *FORGOTTEN, *ENGINES, *ALSO):
        installed = _version(package)
        pinned = tested.get(package) or tested.get(f"{package}-cpu")
        pin = f"{package}=={pinned}" if pinned else package
        if installed is None:
            why = FORGOTTEN.get(package) or ENGINES.get(package) or ""
            needed = package in REQUIRED or package in FORGOTTEN
            missing = "not installed" + (f": {why}" if why else "")
            yield Check(package, PROBLEM if needed else NOTE, missing, f"pip install '{pin}'")
        elif package == "ms-swift" and not installed.startswith("4.6."):
            remedy = "pip install 'ms-swift>=4.6,<4.7'"
            yield Check(package, PROBLEM, f"{installed}: this package is made for 4.6", remedy)
        elif pinned and installed.split("+")[0] != pinned.split("+")[0]:
            versions = f"{installed} (tested with {pinned})"
            yield Check(package, NOTE, versions, f"if something fails: pip install '{pin}'")
        else:
            yield Check(package, OK, installed)
    torch, vision = _version("torch") or "", _version("torchvision") or ""
    if torch and vision and torch.partition("+")[2:] != vision.partition("+")[2:]:
        yield Check(
            "torch and torchvision",
            PROBLEM,
            f"{torch} and {vision} are of different builds: torchvision lacks operators",
            "install both from the same index",
        )


def _gpus(seconds: float) -> Iterator[Check]:
    try:
        gpus = installed_gpus()
    except OSError as error:
        remedy = "reinstall the driver, or restart the machine"
        yield Check("GPU", PROBLEM, str(error), remedy)
        return
    if not gpus:
        yield Check(
            "GPU",
            NOTE,
            "no nvidia-smi: no NVIDIA GPU here, or its driver is not installed",
            "`make demo` and `vlrft tiny` work without one; training of real models does not",
        )
        return
    for i, gpu in enumerate(gpus):
        size = "memory unknown" if gpu.mib is None else f"{gpu.mib / 1024:.0f} GiB"
        yield Check(f"GPU {i}", OK, f"{gpu.name}, {size}, driver {gpu.driver}")
    printed = _run("import torch; print(torch.version.cuda, torch.cuda.is_available())", seconds)
    works = printed.endswith("True")
    yield Check(
        "torch on the GPU",
        OK if works else PROBLEM,
        printed or "torch cannot be imported",
        "" if works else "install a torch whose CUDA the driver supports: https://pytorch.org",
    )


def _run(code: str, seconds: float) -> str:
    """The last line that a fresh interpreter prints, or its error."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=seconds
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {seconds:.0f} s"
    lines = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines()
    return lines[-1] if lines else ""


def _imports(package: str, seconds: float) -> Check:
    printed = _run(f"import {package}; print('imports')", seconds)
    if printed == "imports":
        return Check(f"import {package}", OK, "works")
    state = NOTE if printed.startswith("no answer") else PROBLEM
    pinned = tested_set().get(package)
    remedy = f"pip install '{package}=={pinned}'" if pinned else f"reinstall {package}"
    return Check(f"import {package}", state, printed, remedy)


def _hf_endpoint() -> str:
    return os.environ.get("HF_ENDPOINT", "https://huggingface.co")


def _hub(name: str, address: str, seconds: float) -> Check:
    remedy = REMEDIES[name]
    request = urllib.request.Request(address, method="HEAD")
    try:
        with urllib.request.urlopen(request, timeout=seconds):
            return Check(name, OK, f"{address} answers")
    except urllib.error.HTTPError as error:
        if error.code < 500 and error.code != 407:
            return Check(name, OK, f"{address} answers")
        return Check(name, NOTE, f"{address} answers {error.code}", remedy)
    except (OSError, ValueError) as error:
        why = getattr(error, "reason", error)
        return Check(name, NOTE, f"{address} does not answer within {seconds:.0f} s: {why}", remedy)


def caches() -> dict[str, Path]:
    home = Path.home()
    hugging = os.environ.get("HF_HOME") or home / ".cache" / "huggingface"
    return {
        "HF_HOME": Path(hugging),
        "MODELSCOPE_CACHE": Path(
            os.environ.get("MODELSCOPE_CACHE") or home / ".cache" / "modelscope"
        ),
    }


def _disk() -> Iterator[Check]:
    for variable, folder in caches().items():
        place = next(parent for parent in (folder, *folder.parents) if parent.exists())
        free = shutil.disk_usage(place).free
        space = f"{folder}: {free / GIB:.0f} GiB free"
        if not os.access(place, os.W_OK):
            remedy = f"set {variable} to a folder that you may write to"
            yield Check(f"cache {variable}", PROBLEM, f"{folder} cannot be written to", remedy)
        elif free < LEAST_DISK:
            remedy = (
                f"a 3B model takes 7.5 GB, a 9B model 21 GB, and every checkpoint of full training "
                f"more than that again: set {variable} to a larger disk"
            )
            yield Check(f"cache {variable}", PROBLEM, space, remedy)
        else:
            yield Check(f"cache {variable}", OK, space)


def _shared_memory() -> Iterator[Check]:
    place = Path("/dev/shm")
    if not place.exists():
        return
    total = shutil.disk_usage(place).total
    small = total < LEAST_SHARED
    yield Check(
        "/dev/shm",
        NOTE if small else OK,
        f"{total / GIB:.1f} GiB",
        "NCCL and data loaders share memory there: docker run --shm-size=16g" if small else "",
    )
