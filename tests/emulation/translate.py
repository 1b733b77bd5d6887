"""Rewrites constructs that nvcc accepts and g++ does not, so that csrc's files compile unmodified in the emulator.

__shared__ variables become references into the emulated CTA's memory, asm statements calls of assembly.h, <<<>>> calls.
"""

import re
import zlib

# A pattern for the text of an asm statement, and its function in assembly.h; the first match counts.
KNOWN_ASSEMBLY = [
    (r"^$", "nothing"),
    (r"^mov\.u32 %0, %%tid\.x;", "thread_index"),
    (r"^mov\.u32 %0, %%ctaid\.x;", "block_index"),
    (r"^rcp\.approx\.ftz\.f32", "reciprocal"),
    (r"^ex2\.approx\.ftz\.f32", "exp2"),
    (r"^min\.f32 %0, %1, 0fFF800000;", "minus_infinity"),
    (r"^max\.NaN\.f32", "max_nan"),
    (r"^max\.NaN\.f16x2", "pair_max_nan<__half2>"),
    (r"^max\.NaN\.bf16x2", "pair_max_nan<__nv_bfloat162>"),
    (r"^mad\.wide\.s32", "multiply_add_wide"),
    (r"^ld\.shared::cluster\.v2\.f64", "load_shared_pair"),
    (r"^ld\.global(\.nc)?\.L1::no_allocate\.v4", "load_global4"),
    (r"^ld\.acquire\.gpu\.global\.u32", "load_acquire"),
    (r"^prefetch\.|^cp\.async\.bulk\.prefetch\.|nanosleep\.u32", "nothing"),
]

TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'|::|[\w\']+|.', re.S)
EXTERN_SHARED = re.compile(r"extern\s+__shared__\s+(?:(?:__align__|alignas)\((\d+)\)\s+)?([\w:<>, ]+?)\s+(\w+)\[\];")
STATIC_SHARED = re.compile(
    r"(?:\[\[maybe_unused\]\]\s*)?__shared__\s+(?:alignas\((\w+)\)\s+)?([\w:]+(?:<[\w:, ]+>)?(?:\s[\w:]+)*?)\s+"
    r"(\w+(?:\[[^\];]*\])*(?:,\s*\w+(?:\[[^\];]*\])*)*);"
)
TRIPLE = re.compile(r"([\w:]+(?:<[^<>;{}]*>)?)<<<(.*?)>>>\(", re.S)


def _operands(tokens: list[str]) -> list[str]:
    """The expressions of one section of an asm statement: '"=r"(x), "r"(y)' gives [x, y]."""
    found, depth, expression = [], 0, ""
    for token in tokens:
        if token == ")" and (depth := depth - 1) == 0:
            found.append(expression)
        if depth > 0:
            expression += token
        if token == "(" and (depth := depth + 1) == 1:
            expression = ""
    return found


def _assembly_call(tokens: list[str]) -> str:
    """The call for the tokens between an asm statement's parentheses."""
    sections, depth = [[]], 0
    for token in tokens:
        depth += (token in "([{") - (token in ")]}")
        if depth == 0 and token in (":", "::"):
            sections += [[] for _ in token]
        else:
            sections[-1].append(token)
    text = "".join(t[1:-1] for t in sections[0] if t.startswith('"'))
    name = next((name for pattern, name in KNOWN_ASSEMBLY if re.search(pattern, text)), None)
    if name is None:
        return f'::emulation::assembly::unknown("{text}")'
    operands = [x for section in sections[1:3] for x in _operands(section)]
    return f"::emulation::assembly::{name}({', '.join(operands)})"


def _without_assembly(text: str) -> str:
    tokens, out, i = TOKEN.findall(text), [], 0
    while i < len(tokens):
        if tokens[i] != "asm":
            out.append(tokens[i])
            i += 1
            continue
        start = i
        while tokens[i] != "(":
            i += 1
        first, depth = i + 1, 0
        while True:
            depth += (tokens[i] == "(") - (tokens[i] == ")")
            i += 1
            if depth == 0:
                break
        lines = sum(t.count("\n") for t in tokens[start:i])
        call = _assembly_call(tokens[first : i - 1])
        out.append(call + "\n" * (lines - call.count("\n")))
    return "".join(out)


def _static(match: re.Match, path: str) -> str:
    alignment, kind, names = match.groups()
    out = []
    for declared in re.findall(
        r"(\w+)((?:\[[^\];]*\])*)", re.sub(r"\[[^\]]*\]", lambda m: m[0].replace(" ", ""), names)
    ):
        name, dims = declared
        key = zlib.crc32(f"{path}:{name}:{match.start()}".encode())
        more = f", {alignment}" if alignment else ""
        out.append(f"[[maybe_unused]] auto& {name} = ::emulation::static_shared<{kind}{dims}{more}>({key}u);")
    return " ".join(out) + "\n" * match[0].count("\n")


def _extern(match: re.Match) -> str:
    alignment, kind, name = match.groups()
    more = f", {alignment}" if alignment else ""
    return f"{kind}* const {name} = ::emulation::dynamic_shared<{kind}{more}>();" + "\n" * match[0].count("\n")


def translate(text: str, path: str) -> str | None:
    """C++ for g++ with the same line numbers; None if nothing has to change."""
    out = text
    if re.search(r"\basm\b", out):
        out = _without_assembly(out)
    out = EXTERN_SHARED.sub(_extern, out)
    out = STATIC_SHARED.sub(lambda m: _static(m, path), out)
    out = TRIPLE.sub(r"::emulation::configured(\1, \2)(", out)
    return None if out == text else f'#line 1 "{path}"\n{out}'
