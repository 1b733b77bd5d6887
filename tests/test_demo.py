"""The demo's parts, and the command as CI runs it."""

from pathlib import Path
from unittest import mock

import pytest
import torch

from torch_ext import demo

for module in demo.PACKAGES:
    pytest.importorskip(module)

TEXTS = {
    "kitchen.md": "# Bread\n\nKnead the dough for ten minutes, let it rise then bake it in a hot oven.\n",
    "deep/sky.txt": "The moons of Jupiter were first seen through a telescope by Galileo in the year 1610.\n",
    "tool.py": '"""Sorts numbers in memory by merging runs that are already in order, again and again."""\n',
    ".hidden/secret.md": "This file lies in a hidden folder and must not be read by anybody at all, ever.\n",
    "image.png": "A picture is no text, whatever its bytes may look like to a careless reader of files.\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in TEXTS.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_passages_keep_every_word_and_know_their_line() -> None:
    text = "\n".join(["# Title", "", *(f"paragraph {i} " + "word " * (7 * i % 60) + "\n" for i in range(40))])
    text += "long " * 1000 + "\n## Next\n\nlast words here\n"
    passages = list(demo.split_passages(text, "a.md"))
    assert " ".join(p.text for p in passages).split() == text.split()
    assert max(len(p.text.split()) for p in passages) <= 2 * demo.WORDS
    lines = text.splitlines()
    for passage in passages:
        first = passage.text.split()[0]
        assert any(first in line for line in lines[passage.line - 1 : passage.line + 1])
    assert passages[-1].text == "## Next last words here" and lines[passages[-1].line - 1] == "## Next"


def test_the_model_runs_on_xgemm_and_finds_the_passage(folder: Path, device: torch.device) -> None:
    import torch_ext

    embed = demo.Embedder(device)
    passages = demo.read_passages(*demo.text_files(folder))
    texts = [p.text for p in passages]
    plain = embed(texts)
    torch_ext.replace(embed.model, include="all")
    with demo.OperatorCounter() as counter:
        rows = embed(texts)
    assert counter.xgemm() == {"xgemm::attention": 6, "xgemm::linear": 36} and not counter.torch_math()
    torch.testing.assert_close(rows, plain, rtol=0, atol=1e-5)
    torch.testing.assert_close(rows.norm(dim=-1), torch.ones(len(rows)))
    questions = {"Who discovered satellites of a planet?": "deep/sky.txt", "How do I make a loaf?": "kitchen.md"}
    for question, source in questions.items():
        _, order = demo.ranking(embed([question])[0], rows)
        assert passages[order[0]].source == source


def test_the_counter_sees_torchs_own_operators() -> None:
    x = torch.randn(2, 4, 4)
    with torch.no_grad(), demo.OperatorCounter() as counter:
        (x @ x).softmax(-1)
        torch.nn.functional.scaled_dot_product_attention(x, x, x)
    assert "aten::bmm" in counter.torch_math() and "aten::_softmax" in counter.torch_math() and not counter.xgemm()


def test_command(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A typed question; ctrl-d at the next one goes on to the benchmark."""
    monkeypatch.setattr(demo.sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr("builtins.input", mock.Mock(side_effect=["How do I make a loaf?", EOFError]))
    picture = tmp_path / "out" / "demo.png"
    options = ["--quick", "--device", "cpu", "--folder", folder, "--plot", picture, "--top", "1"]
    assert demo.main([*map(str, options)]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    for expected in (
        *("No NVIDIA GPU in use", "3 passages from 3 files", "max difference to plain torch"),
        *("xgemm::attention 6", "xgemm::linear 36", "kitchen.md:1", "3 of 3 passages on the same place"),
        *("embedding with torch: 3 of 3", "embedding with xgemm: 3 of 3", "benchmark: 15 of 15"),
        *("How do I make a loaf?", "matmul", "softmax", "attention", "speed-up"),
    ):
        assert expected in printed, (expected, printed)
    assert "sky.txt" not in printed
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_questions_come_from_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo.sys.stdin, "isatty", lambda: True)
    assert list(demo.questions("a")) == ["a"]
    monkeypatch.setattr("builtins.input", mock.Mock(side_effect=["b", " c ", "", "d"]))
    assert list(demo.questions(None)) == ["b", "c"]
    monkeypatch.setattr(demo.sys.stdin, "isatty", lambda: False)
    assert list(demo.questions(None)) == [demo.QUESTION]


def test_a_limit_takes_from_every_file() -> None:
    passages = [demo.Passage(source, i, "") for source, n in (("a", 5), ("b", 1), ("c", 3)) for i in range(n)]
    assert demo.choose(passages, 99) == passages
    chosen = demo.choose(passages, 6)
    assert [(p.source, p.line) for p in chosen] == [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("c", 0), ("c", 1)]


def test_the_example_question_is_answered_from_what_a_cpu_embeds(device: torch.device) -> None:
    """Default text and default number of passages on a CPU: the best one is the promise in docs/architecture.md."""
    passages = demo.choose(demo.read_passages(*demo.text_files(None)), demo.CPU_PASSAGES)
    assert len(passages) == demo.CPU_PASSAGES
    embed = demo.Embedder(device)
    rows, question = embed([p.text for p in passages]), embed([demo.QUESTION])[0]
    _, order = demo.ranking(question, rows)
    best = passages[order[0]]
    assert best.source == "docs/architecture.md" and "kernels add in a fixed order" in best.text, best


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--device", "cuda:99"], f"--device cuda:99: PyTorch sees {torch.cuda.device_count()} NVIDIA GPUs here"),
        (["--device", "gpu"], "--device gpu is no device; cuda and cpu are"),
        (["--device", "meta"], "--device meta: runs on cuda and cpu only"),
        (["--passages", "0"], "--passages 0: at least 1"),
        (["--top", "0"], "--top 0: at least 1"),
        (["--folder", "/no/such/folder"], "/no/such/folder is not a folder"),
        (["--folder", "."], "no text"),
        (["--plot", "/dev/null/x/demo.png"], "--plot /dev/null/x/demo.png: cannot write there (Not a directory)"),
    ],
)
def test_what_cannot_run_is_one_line(
    options: list[str], line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert demo.main(options) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"xgemm demo: {line}") and error.count("\n") == 1


@pytest.mark.parametrize("missing", sorted(demo.PACKAGES))
def test_missing_package_is_one_line(missing: str, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    find = demo.importlib.util.find_spec
    monkeypatch.setattr(demo.importlib.util, "find_spec", lambda name: None if name == missing else find(name))
    assert demo.main(["--quick"]) == 1
    pip = demo.PACKAGES[missing]
    assert capsys.readouterr().err == f"xgemm demo: needs {pip}: pip install {pip}\n"


def test_python_example(capsys: pytest.CaptureFixture[str]) -> None:
    from examples import python_model

    python_model.main()
    printed = capsys.readouterr().out
    assert "8 Linear, 4 MultiheadAttention" in printed and "has no backward" in printed.splitlines()[-1]
