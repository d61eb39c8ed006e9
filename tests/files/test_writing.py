from pathlib import Path

import pytest
from support.full_disk import no_room

from swift_vlrft.files.text import InputError
from swift_vlrft.files.writing import DiskFull, beside, write_atomically


def test_a_file_is_replaced_as_a_whole_or_not_at_all(tmp_path):
    file = tmp_path / "folder" / "a.json"
    write_atomically(file, "one")
    with pytest.raises(RuntimeError), beside(file) as unfinished:
        unfinished.write_text("half")
        raise RuntimeError
    assert file.read_text() == "one" and list(file.parent.iterdir()) == [file]


def test_a_link_stays_a_link_and_a_private_file_private(tmp_path):
    target, link = tmp_path / "target", tmp_path / "link"
    write_atomically(target, b"one")
    target.chmod(0o600)
    link.symlink_to(target)
    write_atomically(link, "zwei ü")
    assert link.is_symlink() and target.read_text(encoding="utf-8") == "zwei ü"
    write_atomically(target, "three")
    assert target.stat().st_mode & 0o777 == 0o600


def test_an_address_is_no_folder_here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("s3://bucket/page.html", "file:///page.html"):
        with pytest.raises(InputError):
            write_atomically(Path(name), "")
    assert not list(tmp_path.iterdir())
    write_atomically(Path("C:page.html"), "")


def test_a_full_disk_is_told_by_file_and_takes_nothing(tmp_path):
    file = tmp_path / "a.json"
    write_atomically(file, "one")
    with no_room(10), pytest.raises(DiskFull) as error:
        write_atomically(file, "x" * 100)
    assert str(error.value).startswith(f"{file} ")
    assert file.read_text() == "one" and list(tmp_path.iterdir()) == [file]


def test_writers_with_the_same_process_id_do_not_mix(tmp_path):
    """Two containers that share a folder: both may be process 1."""
    file = tmp_path / "a"
    with beside(file) as one:
        one.write_text("one, and longer")
        with beside(file) as other:
            other.write_text("other")
        assert file.read_text() == "other" and one.read_text() == "one, and longer"
    assert file.read_text() == "one, and longer"


@pytest.mark.parametrize("name", ["n" * 255, "图" * 83 + ".jsonl"], ids=["Latin", "Chinese"])
def test_a_name_as_long_as_the_disk_allows(tmp_path, name):
    """255 bytes."""
    write_atomically(tmp_path / name, "rows")
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [(name, "rows")]
