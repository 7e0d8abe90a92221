"""Records a command in a terminal as an animated SVG, such as the one in README.md.

    pip install pyte
    python scripts/record_terminal.py docs/images/train.svg -- \
        agentgym train customer_support --seed 0

The command really runs, in a pseudo-terminal. The screen is looked at now and then, and
the recording shows what stood there, in fewer seconds than it took: every change of the
screen gets the same time, and the last screen stays. No terminal is needed.
"""

from __future__ import annotations

import argparse
import fcntl
import html
import itertools
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pyte

LOOK_SECONDS = 1.0
MOST_FRAMES = 24
FRAME_SECONDS = 0.5
LAST_SECONDS = 12.0
CELL, LINE, PAD = 7.8, 18, 16
BACKGROUND, PLAIN = "#16181d", "#d5d8de"
COLORS = {
    "black": "#5c6370", "red": "#ef6b73", "green": "#8cc77b", "brown": "#e2b86b",
    "yellow": "#e2b86b", "blue": "#6cb0f2", "magenta": "#c583dc", "cyan": "#5fbac4",
    "white": "#d5d8de",
}  # fmt: skip

Screen = tuple[str, ...]
"""Its lines, each as SVG."""


def main() -> None:
    """Records."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path, metavar="FILE.svg")
    parser.add_argument("command", nargs="+")
    parser.add_argument("--columns", type=int, default=96)
    parser.add_argument("--lines", type=int, default=52)
    options = parser.parse_args()
    frames = list(screens(options.command, options.columns, options.lines))
    middle = frames[:-1]
    step = max(1, -(-len(middle) // MOST_FRAMES))
    chosen = [*middle[::step], frames[-1]]
    options.file.parent.mkdir(parents=True, exist_ok=True)
    options.file.write_text(svg(chosen, options.columns), encoding="utf-8")


def screens(command: list[str], columns: int, lines: int) -> Iterator[Screen]:
    """What the terminal shows, each time that it looks different; the end last."""
    screen = pyte.Screen(columns, lines)
    stream = pyte.ByteStream(screen)
    stream.feed(f"$ {' '.join(command)}\r\n".encode())
    main_end, end = pty.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    variables = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(columns)}
    process = subprocess.Popen(
        command, stdin=end, stdout=end, stderr=end, env=variables, close_fds=True
    )
    os.close(end)
    before: Screen = ()
    looked = time.monotonic()
    while True:
        ready, _, _ = select.select([main_end], [], [], LOOK_SECONDS)
        try:
            data = os.read(main_end, 65_536) if ready else b""
        except OSError:  # The command has ended.
            break
        if ready and not data:
            break
        stream.feed(data)
        if time.monotonic() - looked >= LOOK_SECONDS:
            looked = time.monotonic()
            now = drawn(screen)
            if now != before:
                before = now
                yield now
    os.close(main_end)
    if process.wait():
        raise SystemExit(f"{command[0]} ended with {process.returncode}")
    yield drawn(screen)


def drawn(screen: pyte.Screen) -> Screen:
    """The screen's lines, those below the last one that holds text left out."""
    lines = []
    for y in range(screen.lines):
        row = screen.buffer[y]
        cells = [row[x] for x in range(screen.columns)]
        parts = []
        at = 0
        for look, same in itertools.groupby(cells, key=lambda c: (c.fg, c.bold)):
            text = "".join(cell.data or " " for cell in same)
            width = len(text)
            if text.strip():
                color = COLORS.get(look[0], PLAIN)
                color = PLAIN if look[0] == "default" else color
                if len(look[0]) == 6 and look[0] not in COLORS:
                    color = f"#{look[0]}"
                bold = ' font-weight="bold"' if look[1] else ""
                start = at + len(text) - len(text.lstrip())
                text = text.strip()
                # Spaces that no viewer folds, on a grid that no font bends.
                shown = html.escape(text).replace(" ", "\u00a0")
                parts.append(
                    f'<tspan x="{PAD + start * CELL:.1f}" fill="{color}"{bold} '
                    f'textLength="{len(text) * CELL:.1f}">{shown}</tspan>'
                )
            at += width
        lines.append("".join(parts))
    while lines and not lines[-1]:
        lines.pop()
    return tuple(lines)


def svg(frames: list[Screen], columns: int) -> str:
    """The frames, one after the other, again and again."""
    height = 2 * PAD + LINE * max(map(len, frames))
    width = 2 * PAD + CELL * columns
    total = FRAME_SECONDS * (len(frames) - 1) + LAST_SECONDS
    styles, groups = [], []
    for number, lines in enumerate(frames):
        start = 100 * number * FRAME_SECONDS / total
        stop = 100 * (number + 1) * FRAME_SECONDS / total
        stop = 100 if number == len(frames) - 1 else stop
        styles.append(
            f"@keyframes f{number}{{0%,{start:.2f}%{{opacity:0}}"
            f"{start + 0.01:.2f}%,{stop:.2f}%{{opacity:1}}"
            f"{min(100, stop + 0.01):.2f}%,100%{{opacity:{int(stop == 100)}}}}}"
            f"#f{number}{{animation:f{number} {total:.1f}s infinite}}"
        )
        rows = "".join(
            f'<text y="{PAD + LINE * (y + 0.8):.1f}">{line}</text>'
            for y, line in enumerate(lines)
            if line
        )
        # Where nothing moves, the last screen is the one to see.
        hidden = "" if number == len(frames) - 1 else ' opacity="0"'
        groups.append(f'<g id="f{number}"{hidden}>{rows}</g>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" '
        f'width="{width:.0f}" height="{height}">\n<style>text{{font:13px ui-monospace,'
        "SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;white-space:pre}"
        f"{''.join(styles)}</style>\n"
        f'<rect width="100%" height="100%" rx="8" fill="{BACKGROUND}"/>\n'
        + "\n".join(groups)
        + "\n</svg>\n"
    )


if __name__ == "__main__":
    main()
