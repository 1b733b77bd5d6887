"""Draws the pictures of the lab's pages: ``python -m tools.lab_drawings`` writes docs/lab/*.svg.

A picture is made of squares of a grid, with a colour and a word each, and of words beside them.
"""

import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1] / "docs" / "lab"
SIDE = 18
COLOURS = ["#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#b07aa1", "#9c755f", "#76b7b2", "#edc948"]
PALE = "#eeeeee"


class Picture:
    """Squares and words by column and row; the size follows from them."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.right = self.bottom = 0.0

    def square(self, column: float, row: float, colour: str, word: object = "") -> None:
        x, y = column * SIDE, row * SIDE
        self.right, self.bottom = max(self.right, x + SIDE), max(self.bottom, y + SIDE)
        self.parts.append(f'<rect x="{x:g}" y="{y:g}" width="{SIDE - 1}" height="{SIDE - 1}" fill="{colour}"/>')
        if word != "":
            ink = "#000" if colour == PALE else "#fff"
            at = f'x="{x + SIDE / 2 - 0.5:g}" y="{y + SIDE / 2 + 2.5:g}"'
            self.parts.append(f'<text {at} font-size="8" text-anchor="middle" fill="{ink}">{word}</text>')

    def words(self, column: float, row: float, text: str) -> None:
        x, y = column * SIDE, row * SIDE + 12
        self.right, self.bottom = max(self.right, x + 6.2 * len(text)), max(self.bottom, y + 6)
        self.parts.append(f'<text x="{x:g}" y="{y:g}" font-size="11">{text}</text>')

    def svg(self) -> str:
        size = f'width="{self.right + 8:g}" height="{self.bottom + 8:g}"'
        body = "\n".join(self.parts)
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif">'
        return f'{head}\n<rect width="100%" height="100%" fill="#fff"/>\n{body}\n</svg>\n'


def coalescing() -> Picture:
    """Which elements of A one load of a warp touches (8 lanes, k = 8): steps 01 and 02 of the SGEMM ladder."""
    p = Picture()
    for left, title in ((0, "01: lanes are rows, a sector each"), (14, "02: lanes are columns, A is one address")):
        p.words(left, 0, title)
        for row in range(8):
            for column in range(8):
                lane = row if column == 0 and not left else None
                word = lane if lane is not None else "all" if left and row == column == 0 else ""
                p.square(left + column, 1.2 + row, COLOURS[0] if word != "" else PALE, word)
        p.words(left, 9.4, "B: one address" if not left else "B: neighbours, one sector")
        for lane in range(8):
            word = lane if left else "all" if lane == 0 else ""
            p.square(left + lane, 10.5, COLOURS[1] if word != "" else PALE, word)
    return p


def tile() -> Picture:
    """One step of step 03: the block's tiles of A and B, and the tile of C that they add to."""
    p = Picture()
    for left, title, part in (
        (0, "A: rows of the tile", "row"),
        (10, "B: its columns", "column"),
        (20, "C: 1 tile", ""),
    ):
        p.words(left, 0, title)
        for row in range(8):
            for column in range(8):
                down, across = row // 2, column // 2
                mine = {"row": down == 1, "column": across == 2, "": (down, across) == (1, 2)}[part]
                now = mine and (across if part == "row" else down) == 1
                colour = (COLOURS[0] if now else COLOURS[6]) if mine else PALE
                p.square(left + column, 1.2 + row, colour)
    p.words(0, 9.6, "dark: in shared memory in this step of k, each element read by a whole row or column of threads")
    return p


def trees() -> Picture:
    """Who adds what in the reduction's v0, v1 and v2: eight elements, three steps; a number is the working thread."""
    p = Picture()
    for top, title in enumerate(("v0: tid % (2 s) == 0", "v1: index = 2 s tid", "v2: tid &lt; s, from s = 4")):
        p.words(0, 5.2 * top, title)
        for step in range(3):
            s = 4 >> step if top == 2 else 1 << step
            for i in range(8):
                works = i < s if top == 2 else i % (2 * s) == 0
                word = i if top != 1 else i // (2 * s)
                p.square(i, 5.2 * top + 1.1 + step, COLOURS[step] if works else PALE, word if works else "")
            p.words(8.5, 5.2 * top + 1.1 + step, f"s = {s}: x[i] += x[i + {s}]")
    return p


def banks() -> Picture:
    """The bank of each element of an 8 x 8 tile (eight banks), and a column of it, without and with padding."""
    p = Picture()
    for left, width, title in ((0, 8, "rows of 8: a column is one bank"), (13, 9, "rows of 9: a column is 8 banks")):
        p.words(left, 0, title)
        for row in range(8):
            for column in range(width):
                bank = (row * width + column) % 8
                p.square(left + column, 1.2 + row, COLOURS[bank] if column == 2 else PALE, bank)
    return p


def flash() -> Picture:
    """A row of flash attention: tiles of keys one after the other, and what is kept of those before."""
    p = Picture()
    for step in range(4):
        p.words(0, 2.4 * step, f"tile {step + 1} of the keys")
        for key in range(16):
            now, before = key // 4 == step, key // 4 < step
            p.square(7 + key, 2.4 * step, COLOURS[0] if now else COLOURS[6] if before else PALE)
        p.words(24, 2.4 * step, "m, d, out" + (" (times exp(m_old - m))" if step else ""))
    p.words(
        0, 9.8, "dark: scores in registers; grey-green: seen, only m, d and out are left of them; pale: not read yet"
    )
    return p


DRAWINGS = {f.__name__: f for f in (coalescing, tile, trees, banks, flash)}


def main(folder: Path = DOCS) -> int:
    for name, draw in DRAWINGS.items():
        (folder / f"{name}.svg").write_text(draw().svg())
    return 0


if __name__ == "__main__":
    sys.exit(main())
