"""Which GPU `vlrft try` takes, how large its model is there, and why it takes none."""

import pytest

from swift_vlrft.demo import card


@pytest.mark.slow
@pytest.mark.parametrize(
    ("gpu", "visible", "layers", "said"),
    [
        (("81559", "4", "9.0"), "0,1", 8, ""),
        (("8192", "0", "8.6"), "1", 4, ""),
        (("81559", "70000", "9.0"), "1", 0, "GPU 1 (a card): taken: 70000 of 81559"),
        (("15360", "0", "7.5"), "1", 0, "compute capability 7.5"),
        (("4096", "0", "8.6"), "1", 0, "too small: 4096"),
        (("[N/A]", "0", "9.0"), "1", 0, "how much memory"),
        (("81559", "4", "9.0"), "", 0, "no GPU is visible"),
    ],
)
def test_the_first_free_card_and_a_model_that_fits_or_why_not(
    gpu, visible, layers, said, monkeypatch
):
    rows = [["0", "a card", "81559", "70000", "9.0"], ["1", "a card", *gpu]]
    monkeypatch.setattr(card, "find_spec", bool)
    monkeypatch.setattr(card, "ask_gpus", lambda *_: rows)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    if said:
        with pytest.raises(card.NoCard, match="GPU") as error:
            card.free_card("qwen2_5_vl", 112)
        assert said in str(error.value) and "\n" not in str(error.value)
        return
    found = card.free_card("qwen2_5_vl", 112)
    assert found.size.layers == layers and found.variables["CUDA_VISIBLE_DEVICES"] == "1"
