"""The customers' messages: templates by kind of message.

A template is a string with two kinds of variation:

- slots in braces, filled from the task: ``{order}``, ``{other_order}``, ``{ticket}``,
  ``{email}``, ``{other_email}``, ``{address}``, ``{product}``, ``{name}``, ``{zip}``,
  ``{phone}``;
- alternatives in square brackets, of which one is chosen: ``[Can|Could] you help?``.
  An alternative may be empty, as in ``[Please |]cancel {order}.``; brackets don't nest.

Every expansion is a message that a customer could send, with a clear intent.
``{product}`` stands for a singular noun without an article, so templates put "the",
"my" or "new" before it, never "a".

Each split has its own file in ``data/``: a line ``## key`` starts a kind of message,
each following line is one template. A key names the intent and, after the slash, what
the message contains: ``id`` (the order or ticket number), ``noid`` (no number),
``email`` or ``noemail``. Keys without a slash are whole messages that need no data, or
small parts of a message.

A hash decided each template's split, with near duplicates (sharing 60% of the content
words of their first alternatives, slots aside) kept together. Templates outside
training that still shared 75% with a training template, in any alternatives, moved to
training. Tests check both. Add a template to one split only.
"""

from __future__ import annotations

from functools import cache, partial

from agentgym.core.task import Split
from agentgym.scenarios import wording

sections = partial(wording.sections, "agentgym.scenarios.customer_support")
"""Reads a data file of this scenario."""


@cache
def phrases(split: Split) -> dict[str, list[str]]:
    """Templates of a split by kind of message."""
    return {key: lines for key, *lines in sections(f"phrases_{split}.txt")}
