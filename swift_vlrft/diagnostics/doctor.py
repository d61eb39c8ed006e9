"""Is this machine ready? Each look returns what was found, and the remedy where something is
wrong.

problem  ms-swift 4.5.3: 4.6 is needed      pip install 'ms-swift>=4.6,<4.7'
note     huggingface.co does not answer     HF_ENDPOINT names a mirror; HF_HUB_OFFLINE=1 ...

Every look is bounded in time; a hub that does not answer costs at most its own limit, and all run
side by side.
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
from importlib import metadata
from pathlib import Path
from threading import Thread

from swift_vlrft.files.shipped import shipped_file

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
LEAST_SHARED = 1 * GIB
LEAST_DISK = 20 * GIB


@dataclass(frozen=True, slots=True)
class Look:
    """What one look found; ``remedy`` is empty where nothing is wrong."""

    what: str
    state: str
    found: str
    remedy: str = ""


def look_around(seconds: float = 5.0) -> list[Look]:
    """All looks, in a fixed order. ``seconds`` bounds each hub; engines get twelve times that."""
    slow: list[tuple[str, Callable[[], Look], float]] = [
        ("huggingface.co", lambda: _hub("huggingface.co", _hf_endpoint(), seconds), seconds),
        (
            "modelscope.cn",
            lambda: _hub("modelscope.cn", "https://www.modelscope.cn", seconds),
            seconds,
        ),
        *(
            (name, lambda name=name: _imports(name, 12 * seconds), 12 * seconds)  # type: ignore[misc]
            for name in ENGINES
            if _version(name)
        ),
    ]
    done: dict[str, Look] = {}

    def keep(name: str, look: Callable[[], Look]) -> None:
        done[name] = look()

    waiting = []
    for name, look, limit in slow:
        # Daemons: Python waits for other threads when it ends, however long a hub keeps talking.
        thread = Thread(target=keep, args=(name, look), daemon=True)
        thread.start()
        waiting.append((name, thread, limit))
    found = [*_python(), *_packages(), *_gpus(seconds), *_disk(), *_shared_memory()]
    for name, thread, limit in waiting:
        thread.join(limit + 5)
        late = Look(name, NOTE, f"no answer within {limit:.0f} s", _hub_remedy(name))
        found.append(done.get(name, late))
    return found


def _python() -> Iterator[Look]:
    version = ".".join(map(str, sys.version_info[:3]))
    old = sys.version_info < (3, 11)
    yield Look("Python", PROBLEM if old else OK, version, "use Python 3.11 or newer" if old else "")


def tested_set() -> dict[str, str]:
    """The versions that the tests ran with, by package; the GPU set where there is a driver."""
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


def _packages() -> Iterator[Look]:
    tested = tested_set()
    for package in (*REQUIRED, *FORGOTTEN, *ENGINES, *ALSO):
        found = _version(package)
        wanted = tested.get(package) or tested.get(f"{package}-cpu")
        pin = f"{package}=={wanted}" if wanted else package
        if found is None:
            why = FORGOTTEN.get(package) or ENGINES.get(package) or ""
            needed = package in REQUIRED or package in FORGOTTEN
            said = "not installed" + (f": {why}" if why else "")
            yield Look(package, PROBLEM if needed else NOTE, said, f"pip install '{pin}'")
        elif package == "ms-swift" and not found.startswith("4.6."):
            remedy = "pip install 'ms-swift>=4.6,<4.7'"
            yield Look(package, PROBLEM, f"{found}: this package is made for 4.6", remedy)
        elif wanted and found.split("+")[0] != wanted.split("+")[0]:
            said = f"{found} (tested with {wanted})"
            yield Look(package, NOTE, said, f"if something fails: pip install '{pin}'")
        else:
            yield Look(package, OK, found)
    torch, vision = _version("torch") or "", _version("torchvision") or ""
    if torch and vision and torch.partition("+")[2:] != vision.partition("+")[2:]:
        yield Look(
            "torch and torchvision",
            PROBLEM,
            f"{torch} and {vision} are of different builds: torchvision lacks operators",
            "install both from the same index",
        )


def _gpus(seconds: float) -> Iterator[Look]:
    query = "--query-gpu=name,memory.total,driver_version"
    try:
        done = subprocess.run(
            ["nvidia-smi", query, "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            timeout=4 * seconds,
        )
    except FileNotFoundError:
        yield Look(
            "GPU",
            NOTE,
            "no nvidia-smi: no NVIDIA GPU here, or its driver is not installed",
            "`make demo` and `vlrft tiny` work without one; training of real models does not",
        )
        return
    except subprocess.TimeoutExpired:
        yield Look("GPU", PROBLEM, "nvidia-smi hangs", "restart the driver or the machine")
        return
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        yield Look("GPU", PROBLEM, said[0] if said else "nvidia-smi fails", "reinstall the driver")
        return
    for i, line in enumerate(done.stdout.strip().splitlines()):
        name, memory, driver = (part.strip() for part in line.rsplit(",", 2))
        # Cards that share the host's memory say [N/A].
        size = f"{int(memory) / 1024:.0f} GiB" if memory.isdigit() else "memory unknown"
        yield Look(f"GPU {i}", OK, f"{name}, {size}, driver {driver}")
    code = "import torch; print(torch.version.cuda, torch.cuda.is_available())"
    said_by_torch = _run(code, 12 * seconds)
    works = said_by_torch.endswith("True")
    yield Look(
        "torch on the GPU",
        OK if works else PROBLEM,
        said_by_torch or "torch cannot be imported",
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


def _imports(package: str, seconds: float) -> Look:
    said = _run(f"import {package}; print('imports')", seconds)
    if said == "imports":
        return Look(f"import {package}", OK, "works")
    state = NOTE if said.startswith("no answer") else PROBLEM
    wanted = tested_set().get(package)
    remedy = f"pip install '{package}=={wanted}'" if wanted else f"reinstall {package}"
    return Look(f"import {package}", state, said, remedy)


def _hf_endpoint() -> str:
    return os.environ.get("HF_ENDPOINT", "https://huggingface.co")


def _hub_remedy(name: str) -> str:
    if name.startswith("hugging"):
        return (
            "HF_ENDPOINT names a mirror; or download elsewhere and give local folders as --model "
            "and --dataset, with HF_HUB_OFFLINE=1"
        )
    if name.startswith("modelscope"):
        return "USE_HF=1 takes Hugging Face instead; or give local folders as --model and --dataset"
    return ""


def _hub(name: str, address: str, seconds: float) -> Look:
    remedy = _hub_remedy(name)
    request = urllib.request.Request(address, method="HEAD")
    try:
        with urllib.request.urlopen(request, timeout=seconds):
            return Look(name, OK, f"{address} answers")
    except urllib.error.HTTPError as error:
        if error.code < 500 and error.code != 407:
            return Look(name, OK, f"{address} answers")
        return Look(name, NOTE, f"{address} answers {error.code}", remedy)
    except (OSError, ValueError) as error:
        why = getattr(error, "reason", error)
        return Look(name, NOTE, f"{address} does not answer within {seconds:.0f} s: {why}", remedy)


def caches() -> dict[str, Path]:
    home = Path.home()
    hugging = os.environ.get("HF_HOME") or home / ".cache" / "huggingface"
    return {
        "HF_HOME": Path(hugging),
        "MODELSCOPE_CACHE": Path(
            os.environ.get("MODELSCOPE_CACHE") or home / ".cache" / "modelscope"
        ),
    }


def _disk() -> Iterator[Look]:
    for variable, folder in caches().items():
        place = next(parent for parent in (folder, *folder.parents) if parent.exists())
        free = shutil.disk_usage(place).free
        said = f"{folder}: {free / GIB:.0f} GiB free"
        if not os.access(place, os.W_OK):
            remedy = f"set {variable} to a folder that you may write to"
            yield Look(f"cache {variable}", PROBLEM, f"{folder} cannot be written to", remedy)
        elif free < LEAST_DISK:
            remedy = (
                f"a 3B model takes 7.5 GB, a 9B model 21 GB, and every checkpoint of full training "
                f"more than that again: set {variable} to a larger disk"
            )
            yield Look(f"cache {variable}", PROBLEM, said, remedy)
        else:
            yield Look(f"cache {variable}", OK, said)


def _shared_memory() -> Iterator[Look]:
    place = Path("/dev/shm")
    if not place.exists():
        return
    total = shutil.disk_usage(place).total
    small = total < LEAST_SHARED
    yield Look(
        "/dev/shm",
        NOTE if small else OK,
        f"{total / GIB:.1f} GiB",
        "NCCL and data loaders share memory there: docker run --shm-size=16g" if small else "",
    )
