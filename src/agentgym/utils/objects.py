"""Objects that a Python program gave to a training, under names that settings can hold.

Settings are text. An agent, a reward or a sandbox that was given as an object is kept
here, and the settings name it as `agentgym.utils.objects:object_1`. Another
process cannot find it, so such a run cannot be resumed there; name a `module:function`
instead if that is needed.
"""

from __future__ import annotations

import sys
from typing import Any

_count = 0


def name_of(thing: Any) -> str:
    """A name for the object, as `module:function`; a text is a name already."""
    global _count
    if isinstance(thing, str):
        return thing
    _count += 1
    name = f"object_{_count}"
    setattr(sys.modules[__name__], name, thing)
    return f"{__name__}:{name}"
