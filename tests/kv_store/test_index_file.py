import pytest

from kv_store.index_file import PageFile, SavedPage, decode_index, encode_index

FIRST = SavedPage(tuple(range(16)), -1, {"a": 16, "b": 16}, PageFile("00000001.safetensors", 16, 1000, "ab" * 32))
SECOND = SavedPage((7, 8), 0, {"a": 2}, PageFile("00000002.safetensors", 2, 200, "cd" * 32))


def test_an_index_comes_back_as_it_was() -> None:
    assert decode_index(encode_index("model", [FIRST, SECOND]), "model") == [FIRST, SECOND]


def test_the_fingerprint_must_be_ours() -> None:
    with pytest.raises(ValueError, match="saved with other weights"):
        decode_index(encode_index("model", [FIRST]), "another model")


def test_every_flipped_bit_is_noticed() -> None:
    data = encode_index("model", [FIRST, SECOND])
    for place in range(len(data)):
        damaged = bytearray(data)
        damaged[place] ^= 1
        with pytest.raises(ValueError, match=r"."):
            decode_index(bytes(damaged), "model")


@pytest.mark.parametrize(
    "page",
    [
        SavedPage((), -1, {}, FIRST.file),
        SavedPage(tuple(range(17)), -1, {}, FIRST.file),
        SavedPage((1,), 0, {}, FIRST.file),
        SavedPage((1,), -2, {}, FIRST.file),
        SavedPage((1,), -1, {}, PageFile("../../elsewhere.safetensors", 1, 100, "ab")),
    ],
)
def test_entries_that_make_no_tree_are_refused(page: SavedPage) -> None:
    with pytest.raises(ValueError, match="entry 0"):
        decode_index(encode_index("model", [page]), "model")


def test_only_full_pages_are_followed() -> None:
    with pytest.raises(ValueError, match="entry 1"):
        decode_index(encode_index("model", [SavedPage((1,), -1, {}, FIRST.file), SECOND]), "model")
