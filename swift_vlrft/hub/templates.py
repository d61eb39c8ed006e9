"""Cards from the templates in ``templates/``. Text of others goes through the filters ``inline``
and ``code`` there: Markdown has no escaping of its own.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from swift_vlrft.datasets.card import MARK, MARK_END
from swift_vlrft.files.markdown import code, fenced, inline, shown

if TYPE_CHECKING:
    from jinja2 import Environment


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("swift_vlrft.hub"),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters |= {"inline": inline, "code": code, "fenced": fenced}
    return environment


def render(template: str, **values: Any) -> str:
    """The part of a card that is ours, between its marks."""
    text = _environment().get_template(template).render(values)
    return f"{MARK}\n\n{shown(text).strip()}\n\n{MARK_END}\n"
