"""A second plugin: engines may sample every token, as a server without our plugin may."""

from copy import copy

from swift.template import TEMPLATE_MAPPING, register_template

for meta in list(TEMPLATE_MAPPING.values()):
    meta = copy(meta)
    meta.template_cls = meta.template_cls.__mro__[2]
    register_template(meta, exist_ok=True)
