import pytest

from swift_vlrft.files.writing import beside, write_atomically


def test_a_file_is_replaced_as_a_whole_or_not_at_all(tmp_path):
    file = tmp_path / "folder" / "a.json"
    write_atomically(file, "one")
    with pytest.raises(RuntimeError), beside(file) as unfinished:
        unfinished.write_text("half")
        raise RuntimeError
    assert file.read_text() == "one"
    assert list(file.parent.iterdir()) == [file]


def test_a_link_stays_a_link(tmp_path):
    target, link = tmp_path / "target", tmp_path / "link"
    write_atomically(target, b"one")
    link.symlink_to(target)
    write_atomically(link, "zwei ü")
    assert link.is_symlink() and target.read_text(encoding="utf-8") == "zwei ü"
