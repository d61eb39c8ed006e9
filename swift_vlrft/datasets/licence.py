"""Licences as both hubs name them. One is stated or taken from the source's card, never guessed.

licence_data("Apache License 2.0")    {"license": "apache-2.0"}
licence_data("My terms")              {"license": "other", "license_name": "my-terms"}
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from swift_vlrft.datasets.source import DataError
from swift_vlrft.datasets.splits import splits_in

LONGEST = 200
UNKNOWN = "other"
"""What ModelScope is told where none is stated: by itself its library would say Apache-2.0."""

# https://huggingface.co/docs/hub/repositories-licenses; ModelScope takes the same names, and the
# longer ones below.
KNOWN = """
    afl-3.0 agpl-3.0 apache-2.0 apple-amlr apple-ascl artistic-2.0 bigcode-openrail-m
    bigscience-bloom-rail-1.0 bigscience-openrail-m bsd bsd-2-clause bsd-3-clause
    bsd-3-clause-clear bsl-1.0 c-uda cc cc-by-2.0 cc-by-2.5 cc-by-3.0 cc-by-4.0 cc-by-nc-2.0
    cc-by-nc-3.0 cc-by-nc-4.0 cc-by-nc-nd-3.0 cc-by-nc-nd-4.0 cc-by-nc-sa-2.0 cc-by-nc-sa-3.0
    cc-by-nc-sa-4.0 cc-by-nd-4.0 cc-by-sa-3.0 cc-by-sa-4.0 cc0-1.0 cdla-permissive-1.0
    cdla-permissive-2.0 cdla-sharing-1.0 creativeml-openrail-m deepfloyd-if-license ecl-2.0
    epl-1.0 epl-2.0 etalab-2.0 eupl-1.1 eupl-1.2 fair-noncommercial-research-license gemma gfdl gpl
    gpl-2.0 gpl-3.0 grok2-community h-research intel-research isc lgpl lgpl-2.1 lgpl-3.0 lgpl-lr
    llama2 llama3 llama3.1 llama3.2 llama3.3 llama4 lppl-1.3c mit mpl-2.0 ms-pl ncsa odbl odc-by
    ofl-1.1 openmdw-1.0 openmdw-1.1 openrail openrail++ osl-3.0 other pddl postgresql unknown
    unlicense wtfpl zlib
"""
_ALSO = {"apache license 2.0": "apache-2.0", "mit license": "mit", "apache 2.0": "apache-2.0"}


def licence_data(licence: str | None) -> dict[str, Any]:
    """What the head of a card says of it. A URL, or a name that is none of the hubs', becomes
    "other" with that name.
    """
    if licence is None:
        return {}
    text = " ".join(licence.split())
    if not text or not text.isprintable() or len(text) > LONGEST:
        raise DataError(f"--license {licence[:LONGEST]!r}: a name is expected, such as cc-by-4.0")
    name = _ALSO.get(text.lower(), text.lower())
    if name in KNOWN.split():
        return {"license": name}
    slug = re.sub(r"[^a-z0-9.]+", "-", name.removeprefix("https://")).strip("-.")
    link = {"license_link": text} if re.fullmatch(r"https?://[^\s\"'<>]+", text) else {}
    return {"license": "other", "license_name": slug or "other"} | link


def stated_licence(card: Path) -> str | None:
    """The licence that a card states at its head; None where there is no card, or none in it."""
    import yaml
    from huggingface_hub import RepoCard

    if not card.is_file():
        return None
    try:
        data = RepoCard.load(card, ignore_metadata_errors=True).data.to_dict()
    except (yaml.YAMLError, ValueError, OSError):
        return None
    found = data.get("license")
    found = found[0] if isinstance(found, list) and len(found) == 1 else found
    named = data.get("license_link") or data.get("license_name")
    if found == "other" and isinstance(named, str):
        found = named
    return found if isinstance(found, str) and found.strip() else None


def source_licence(source: Path) -> str | None:
    """What the card of a set on disk states: beside its files, or above a folder of a split."""
    folder = source if source.is_dir() else source.parent
    cards = [folder / "README.md"]
    if folder.name == "data" or splits_in(folder.name):
        cards.append(folder.parent / "README.md")
    return next(filter(None, map(stated_licence, cards)), None)
