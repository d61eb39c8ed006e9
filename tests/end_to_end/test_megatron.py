"""The flags of Megatron-SWIFT that `vlrft check` knows, as far as a machine without a GPU goes."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.swift_run import ON_CPU, REPOSITORY

from swift_vlrft.recipe import facts as shipped

# What ms-swift's extra [megatron] asks for, beside what is installed.
PACKAGES = ("megatron-core==0.16.1", "mcore-bridge==1.6.5")
SITE = Path(__file__).with_name("megatron_site")


@pytest.mark.end_to_end
@pytest.mark.nightly
def test_the_shipped_flags_of_megatron_are_ms_swifts(tmp_path):
    uv, packages = shutil.which("uv") or REPOSITORY / ".uv" / "bin" / "uv", tmp_path / "packages"
    if not Path(uv).is_file():
        pytest.skip("uv is not installed: make env gets it")
    install = [uv, "pip", "install", "-q", "--python", sys.executable, "--no-deps", *PACKAGES]
    done = subprocess.run([*install, "--target", packages], capture_output=True, text=True)
    if "error sending request" in done.stderr:
        pytest.skip(f"no package index: {done.stderr.splitlines()[0]}")
    assert done.returncode == 0, done.stderr
    path = os.pathsep.join(map(str, (SITE, REPOSITORY, packages)))
    command = [sys.executable, REPOSITORY / "dev" / "ms_swift_facts.py"]
    environment = os.environ | ON_CPU | {"PYTHONPATH": path}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    shutil.rmtree(packages)  # 200 MB
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)["commands"]
    assert found == json.loads(shipped.SHIPPED.read_text())["commands"]
