"""examples/generate.py: the tokens of a paged cache and continuous batching are those of plain torch."""

import pytest
import torch

pytest.importorskip("transformers")
from examples import generate


def test_tokens_and_log_probabilities(device: torch.device) -> None:
    """Fewer slots and pages than the requests would need at once; on a GPU bits, too."""
    width, layers, longest = (256, 2, 70) if device.type == "cuda" else (128, 2, 20)
    model = generate.make_model(device.type, width, layers, torch.float32)

    def requests() -> list[generate.Request]:
        return generate.make_requests(8, longest, device.type)

    engine = generate.Engine(model, slots=4, pages=3 * -(-2 * longest // generate.PAGE))
    answers = [torch.stack(r.tokens).tolist() for r in engine.run(requests())]
    assert [len(a) for a in answers] == [r.new for r in requests()]
    assert sorted(engine.free_slots) == [*range(4)] and len(set(engine.free_pages)) == engine.table.shape[1]
    assert answers == generate.by_torch(model, requests())
    for together, alone in zip(*generate.together_and_alone(engine, requests), strict=True):
        if device.type == "cuda":
            assert torch.equal(together, alone)
        torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-4)


def test_it_runs(capsys: pytest.CaptureFixture[str]) -> None:
    generate.main(["--device", "cpu", "--requests", "3", "--longest", "6"])
    assert "3 of 3 answers are the tokens of torch's SDPA" in capsys.readouterr().out


def test_a_request_without_room() -> None:
    engine = generate.Engine(generate.make_model("cpu", 128, 1, torch.float32), slots=2, pages=1)
    with pytest.raises(RuntimeError, match="expected a request of up to 1 pages"):
        engine.run(generate.make_requests(1, 40, "cpu", seed=3))
