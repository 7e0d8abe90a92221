"""What every bank of templates has to keep: slots, brackets, splits without twins."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from agentgym.core.task import SPLITS, Split

SLOT = re.compile(r"\{([^{}]*)\}")
_GROUP = re.compile(r"\[([^\[\]]*)\]")
_STOP = frozenset(
    "a an and are as by do for how i in is it many me my of on please that the to what "
    "which with you your".split()
)


def expansions(template: str) -> list[str]:
    """All ways to choose the alternatives of a template."""
    parts = _GROUP.split(template)
    choices = [p.split("|") if i % 2 else [p] for i, p in enumerate(parts)]
    return ["".join(chosen) for chosen in itertools.product(*choices)]


class WordingBank:
    """The templates of a scenario, by split and kind of sentence."""

    def __init__(
        self,
        templates: Callable[[Split], Mapping[str, Sequence[str]]],
        slots: Mapping[str, set[str]],
        family: Callable[[str], str] = lambda kind: kind,
    ) -> None:
        """Takes a bank.

        Args:
            templates: Gives those of a split.
            slots: Of each kind of sentence.
            family: Kinds that say nearly the same have one.
        """
        self._templates = templates
        self._slots = slots
        self._family = family

    def all(self, split: Split) -> Iterator[tuple[str, str]]:
        """Kinds and templates."""
        for kind, texts in self._templates(split).items():
            for text in texts:
                yield kind, text

    def check_kinds(self, split: Split, fewest: Mapping[Split, int]) -> None:
        """Every kind of sentence is there, and often enough."""
        found = self._templates(split)
        assert set(found) == set(self._slots)
        assert min(map(len, found.values())) >= fewest[split]

    def check_slots(self, split: Split) -> None:
        """Brackets do not nest, slots are all there, spaces are single."""
        for kind, template in self.all(split):
            assert not set("[]|") & set(_GROUP.sub("", template)), template
            for text in expansions(template):
                assert sorted(SLOT.findall(text)) == sorted(self._slots[kind]), text
                assert text == text.strip() and "  " not in text, text

    def check_origins(self) -> None:
        """No text is said by two templates."""
        origin: dict[str, tuple[str, str, str]] = {}
        for split in SPLITS:
            for kind, template in self.all(split):
                for text in expansions(template):
                    here = (split, kind, template)
                    assert origin.setdefault(text.lower(), here) == here, text

    def near_twins(self, first_only: bool, threshold: float) -> set[tuple[str, str]]:
        """Templates outside training that read like one of training, with that one."""
        found = set()
        known: dict[str, list[tuple[str, frozenset[str]]]] = {}
        for kind, template in self.all("train"):
            some = expansions(template)[: 1 if first_only else None]
            known.setdefault(self._family(kind), []).extend(
                (template, _content_words(t)) for t in some
            )
        for split in SPLITS[1:]:
            for kind, template in self.all(split):
                for text in expansions(template)[: 1 if first_only else None]:
                    mine = _content_words(text)
                    for other, words in known[self._family(kind)]:
                        if len(mine & words) >= threshold * len(mine | words):
                            found.add((template, other))
        return found


def _content_words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"[a-z']+", SLOT.sub(" ", text).lower())) - _STOP
