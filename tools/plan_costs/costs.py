"""The constants of the planners' models: found in csrc/matmul as they stand there, and written back in place.

A cost is a positive number of type double: a named constant of the planner (``constexpr double kPair = 0.95;``), a
member of ``Machine`` in machine.h, or a double field of a row of tiles.h. Its name is that of its file in
csrc/matmul/plan and itself: ``wgmma.kPair``, ``machine.read_bytes``, ``tiles.mma_64x64.block``. Integers stay out: they
say what a kernel is or where it serves.
"""

import ast
import operator
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CSRC = ROOT / "csrc"

_COMMENT = re.compile(r"//[^\n]*")
_CONSTANTS = re.compile(r"constexpr double ((?:\w+ = [^;,]+,?\s*)+);")
_MEMBER = re.compile(r"^  double (\w+) = ([^;]+);", re.MULTILINE)
_ENTRY = re.compile(r"(\w+) = ([^,;]+)")
_STRUCT = re.compile(r"struct (TileInfo) \{(.*?)^\};", re.MULTILINE | re.DOTALL)
_FIELDS = re.compile(r"^  ([\w:]+) ([^;(]+);", re.MULTILINE)
_TABLE = re.compile(r"(k\w+Tiles)\{\{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_ROW = re.compile(r"^    \{(.*)\},?\s*$", re.MULTILINE)
_OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}


@dataclass(frozen=True)
class Cost:
    """A number in a source file, at [start, end) of its text."""

    name: str
    file: Path
    start: int
    end: int
    value: float


def _number(text: str) -> float:
    """The value of a literal or of arithmetic on literals, as in ``512 / 0.82``."""

    def value(node: ast.expr) -> float:
        if isinstance(node, ast.Constant):
            return float(node.value)
        if isinstance(node, ast.BinOp):
            return _OPERATORS[type(node.op)](value(node.left), value(node.right))
        raise ValueError(f"expected arithmetic on numbers, got {text}")

    return value(ast.parse(text.strip(), mode="eval").body)


def _without_comments(text: str) -> str:
    """The same text with comments blanked, so that positions stay."""
    return _COMMENT.sub(lambda match: " " * len(match[0]), text)


def _entries(text: str, start: int) -> Iterator[tuple[str, int, int]]:
    """``a = 1, b = 2``: names and where their values stand."""
    for match in _ENTRY.finditer(text):
        value = match[2].rstrip()
        yield match[1], start + match.start(2), start + match.start(2) + len(value)


def _fields(struct: str) -> list[tuple[str, str]]:
    """Name and type of a struct's members, in order."""
    found = []
    for kind, names in _FIELDS.findall(struct):
        found += [(re.split(r"[ =]", name.strip())[0], kind) for name in names.split(",")]
    return found


def _columns(row: str) -> Iterator[tuple[int, int]]:
    """Where the top-level values of an initialiser stand."""
    depth = start = 0
    for at, letter in enumerate(row + ","):
        depth += letter in "{(" and 1
        depth -= letter in "})" and 1
        if letter == "," and depth == 0:
            value = row[start:at]
            yield start + len(value) - len(value.lstrip()), at - (len(value) - len(value.rstrip()))
            start = at + 1


def _rows(text: str) -> Iterator[tuple[str, str, int, int]]:
    """Of every table of tiles: a row's name, a double field's name, and where its value stands."""
    structs = {name: _fields(body) for name, body in _STRUCT.findall(text)}
    for table in _TABLE.finditer(text):
        (fields,) = structs.values()  # one kind of tile a header
        kinds = dict(fields)
        for row in _ROW.finditer(table[2]):
            first = table.start(2) + row.start(1)
            name = re.search(r'"(\w+)"', row[1])
            assert name, f"a row of {table[1]} without a name"
            for (start, end), (field, _) in zip(_columns(row[1]), fields, strict=False):
                if kinds[field] == "double":
                    yield name[1], field, first + start, first + end


def of_text(file: Path, text: str) -> Iterator[Cost]:
    """The costs in a text of the file `file`."""
    text = _without_comments(text)

    def cost(name: str, start: int, end: int) -> Cost:
        return Cost(f"{file.stem}.{name}", file, start, end, _number(text[start:end]))

    if file.name == "machine.h":
        for match in _MEMBER.finditer(text):
            yield cost(match[1], match.start(2), match.start(2) + len(match[2].rstrip()))
    if file.parent.name == "plan":
        for match in _CONSTANTS.finditer(text):
            for entry in _entries(match[1], match.start(1)):
                yield cost(*entry)
    if file.name == "tiles.h":
        for row, field, start, end in _rows(text):
            yield cost(f"{row}.{field}", start, end)


def sources() -> list[Path]:
    """The planner, and what it includes of csrc/matmul."""
    return sorted({*CSRC.glob("matmul/**/*.h"), *CSRC.glob("matmul/plan/*.cpp"), CSRC / "matmul" / "order.cpp"})


def find() -> list[Cost]:
    """Every cost of csrc/matmul. Zeros, which say that a row has no such figure, are none."""
    return [cost for file in sources() for cost in of_text(file, file.read_text()) if cost.value > 0]


def literal(value: float, digits: int = 3) -> str:
    """The shortest text of the value rounded to `digits` figures: 2600, 0.31, 1.65e9, 2.4e-6."""
    rounded = float(f"{value:.{digits}g}")
    if 1e-3 <= rounded < 1e5:
        return f"{rounded:g}" if rounded != int(rounded) else str(int(rounded))
    mantissa, exponent = f"{rounded:.{digits - 1}e}".split("e")
    mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
    return f"{mantissa}e{int(exponent)}"


def write(costs: list[Cost], values: list[float]) -> dict[Path, str]:
    """The files' new texts: each value that moved by half a per cent or more is written in place of the old one."""
    texts: dict[Path, str] = {}
    for cost, value in sorted(zip(costs, values, strict=True), key=lambda pair: -pair[0].start):
        text = literal(value)
        if abs(value / cost.value - 1) < 5e-3:
            continue
        before = texts.get(cost.file, cost.file.read_text())
        texts[cost.file] = before[: cost.start] + text + before[cost.end :]
    return texts
