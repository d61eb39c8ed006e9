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
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from swift_vlrft.files.shipped import shipped_file
from swift_vlrft.recipe.gpus import installed_gpus

OK, NOTE, PROBLEM = "ok", "note", "problem"
GIB = 2**30

NEEDED = {
    **dict.fromkeys(("ms-swift", "torch", "torchvision", "transformers", "trl", "peft"), ""),
    "datasets": "",
    "msgspec": ": ms-swift's GRPO imports it without requiring it",
    "qwen-vl-utils": ": every Qwen-VL model needs it",
}
"""Packages, and why they are needed."""
ENGINES = {
    "vllm": ": recipes with --use_vllm true need it",
    "deepspeed": ": recipes with --deepspeed need it",
}
ALSO = dict.fromkeys(("accelerate", "modelscope", "numpy", "math-verify"), "")
REMEDIES = {
    "huggingface.co": "HF_ENDPOINT names a mirror; or download elsewhere and give local folders as "
    "--model and --dataset, with HF_HUB_OFFLINE=1",
    "modelscope.cn": "USE_HF=1 takes Hugging Face instead; or give local folders as --model and "
    "--dataset",
}
KERNELS = ("flash-linear-attention", "causal-conv1d")
LEAST_SHARED = 1 * GIB
LEAST_DISK = 20 * GIB
STARTS = 5.0
"""Seconds in which a process that asks a hub has started."""


@dataclass(frozen=True, slots=True)
class Check:
    """Says what a check found; ``remedy`` is empty if nothing is wrong."""

    what: str
    state: str
    found: str
    remedy: str = ""


def _check(what: str, text: str, remedy: str = "", state: str = PROBLEM) -> Check:
    """``state`` is that of a check with a remedy."""
    return Check(what, state if remedy else OK, text, remedy)


def run_checks(seconds: float = 3.0) -> list[Check]:
    """Run all checks in order; a hub gets ``seconds``, an import from a cold disk 20 times that."""
    long = 20 * seconds
    with ThreadPoolExecutor() as pool:
        mirror = os.environ.get("HF_ENDPOINT", "https://huggingface.co")
        asked = {"huggingface.co": mirror, "modelscope.cn": "https://www.modelscope.cn"}
        hubs = [pool.submit(_hub, *of, seconds) for of in asked.items() if version_of("requests")]
        engines = [pool.submit(_imports, name, long) for name in ENGINES if version_of(name)]
        old = sys.version_info < (3, 11)
        version = ".".join(map(str, sys.version_info[:3]))
        checks = [_check("Python", version, "use Python 3.11 or newer" * old)]
        checks += [*_packages(), *_gpus(long), *_disk()]
        return checks + [waiting.result() for waiting in (*hubs, *engines)]


def tested_set() -> dict[str, str]:
    """Return the versions that the tests ran with, by package; the GPU set if there is a driver."""
    name = "gpu.txt" if shutil.which("nvidia-smi") else "cpu.txt"
    try:
        text = shipped_file("requirements", name).read_text()
    except FileNotFoundError:
        return {}
    lines = [line.split("#")[0].strip() for line in text.splitlines()]
    return dict(line.split("==", 1) for line in lines if "==" in line)


def version_of(package: str) -> str | None:
    for name in (package, f"{package}-cpu"):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return None


def _packages() -> Iterator[Check]:
    tested = tested_set()
    for package, why in (NEEDED | ENGINES | ALSO).items():
        installed = version_of(package)
        pinned = tested.get(package) or tested.get(f"{package}-cpu")
        pip = f"pip install '{package}=={pinned}'" if pinned else f"pip install '{package}'"
        if installed is None:
            state = PROBLEM if package in NEEDED else NOTE
            yield _check(package, f"not installed{why}", pip, state)
        elif package == "ms-swift" and not installed.startswith("4.6."):
            remedy = "pip install 'ms-swift>=4.6,<4.7'"
            yield _check(package, f"{installed}: this package is made for 4.6", remedy)
        elif pinned and installed.split("+")[0] != pinned.split("+")[0]:
            versions = f"{installed} (tested with {pinned})"
            yield _check(package, versions, f"if something fails: {pip}", NOTE)
        else:
            yield _check(package, installed)
    torch, vision = version_of("torch") or "", version_of("torchvision") or ""
    if torch and vision and torch.partition("+")[2:] != vision.partition("+")[2:]:
        text = f"{torch} and {vision} are of different builds: torchvision lacks operators"
        yield _check("torch and torchvision", text, "install both from the same index")


def _gpus(seconds: float) -> Iterator[Check]:
    try:
        gpus = installed_gpus()
    except OSError as error:
        yield _check("GPU", str(error), "reinstall the driver, or restart the machine")
        return
    if not gpus:
        text = "no nvidia-smi: no NVIDIA GPU here, or its driver is not installed"
        remedy = "`make demo` and `vlrft tiny` work without one; training of real models does not"
        yield _check("GPU", text, remedy, NOTE)
        return
    for i, gpu in enumerate(gpus):
        size = "memory unknown" if gpu.mib is None else f"{gpu.mib / 1024:.0f} GiB"
        yield _check(f"GPU {i}", f"{gpu.name}, {size}, driver {gpu.driver}")
    for package in KERNELS:
        text = version_of(package) or "not installed: Qwen3.5 then trains in slow, plain PyTorch"
        remedy = "" if version_of(package) else f"to train it: pip install {package}"
        yield _check(package, text, remedy, NOTE)
    printed = _run("import torch; print(torch.version.cuda, torch.cuda.is_available())", seconds)
    remedy = "install a torch whose CUDA the driver supports: https://pytorch.org"
    text = printed or "torch cannot be imported"
    yield _check("torch on the GPU", text, "" if text.endswith("True") else remedy)


def _run(code: str, seconds: float) -> str | None:
    """The last line that a fresh interpreter prints, or its error; None after ``seconds``."""
    command = [sys.executable, "-c", code]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return None
    lines = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines()
    return lines[-1] if lines else ""


def _imports(package: str, seconds: float) -> Check:
    printed = _run(f"import {package}; print('imports')", seconds)
    if printed == "imports":
        return _check(f"import {package}", "works")
    pinned = tested_set().get(package)
    remedy = f"pip install '{package}=={pinned}'" if pinned else f"reinstall {package}"
    if printed is None:
        return _check(f"import {package}", f"no answer within {seconds:.0f} s", remedy, NOTE)
    return _check(f"import {package}", printed, remedy)


def _hub(name: str, address: str, seconds: float) -> Check:
    """Ask a hub in a process of its own, which can be ended while the hub still talks."""
    code = f"import requests; print(requests.head({address!r}, timeout={seconds}).status_code)"
    printed = _run(code, seconds + STARTS)
    if printed is None or not printed.isdecimal():
        text = f"{address} does not answer within {seconds:.0f} s: {printed or 'no whole answer'}"
        return _check(name, text, REMEDIES[name], NOTE)
    failed = int(printed) >= 500 or printed == "407"
    text = f"{address} answers{f' {printed}' * failed}"
    return _check(name, text, REMEDIES[name] * failed, NOTE)


def _disk() -> Iterator[Check]:
    for variable, name in (("HF_HOME", "huggingface"), ("MODELSCOPE_CACHE", "modelscope")):
        folder = Path(os.environ.get(variable) or Path.home() / ".cache" / name)
        place = next(parent for parent in (folder, *folder.parents) if parent.exists())
        free = shutil.disk_usage(place).free
        text, remedy = f"{folder}: {free / GIB:.0f} GiB free", ""
        if not os.access(place, os.W_OK):
            text = f"{folder} cannot be written to"
            remedy = f"set {variable} to a folder that you may write to"
        elif free < LEAST_DISK:
            remedy = (
                f"a 3B model takes 7.5 GB, a 9B model 21 GB, and every checkpoint of full training "
                f"more than that again: set {variable} to a larger disk"
            )
        yield _check(f"cache {variable}", text, remedy)
    if (shared := Path("/dev/shm")).exists():
        total = shutil.disk_usage(shared).total
        remedy = "NCCL and data loaders share memory there: docker run --shm-size=16g"
        small = total < LEAST_SHARED
        yield _check("/dev/shm", f"{total / GIB:.1f} GiB", remedy * small, NOTE)
