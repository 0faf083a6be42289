"""Paths of a settings file are relative to its folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from heedful.config.base import Config, PathName
from heedful.config.paths import find_beside
from heedful.config.read import read_settings


class Corpus(Config):
    file: PathName | None = None
    """A path."""
    name: str = ""
    """No path."""


class Settings(Config):
    corpus: Corpus = Corpus()
    corpora: tuple[Corpus, ...] = ()
    either: int | PathName = 1
    """A number or a path."""


FILE = """\
either = "here"
[corpus]
file = "here"
name = "here"
[[corpora]]
file = "here"
[[corpora]]
file = "elsewhere"
"""


def test_paths_of_a_file_are_looked_up_beside_it_and_overrides_are_not(tmp_path: Path) -> None:
    (tmp_path / "here").write_text("")
    (tmp_path / "settings.toml").write_text(FILE)
    found = str(tmp_path / "here")
    settings = read_settings(Settings, tmp_path / "settings.toml", beside=tmp_path)
    assert (settings.config.corpus.file, settings.config.corpus.name, settings.config.either) == (found, "here", found)
    assert [corpus.file for corpus in settings.config.corpora] == [found, "elsewhere"]
    assert settings.origins["corpus.file"] == "file settings.toml:3"
    assert read_settings(Settings, tmp_path / "settings.toml").config.corpus.file == "here"
    assert (
        read_settings(Settings, tmp_path / "settings.toml", ["corpus.file=here"], beside=tmp_path).config.corpus.file == "here"
    )


@pytest.mark.parametrize("name", ["", "-", "/", "~/here", "missing", "no*match"])
def test_other_names_are_left_as_they_are(tmp_path: Path, name: str) -> None:
    (tmp_path / "here").write_text("")
    assert find_beside(name, tmp_path) == name


def test_a_relative_folder_and_a_pattern_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/x-1.parquet").write_text("")
    monkeypatch.chdir(tmp_path / "a")
    assert find_beside("../a/x-*.parquet", Path()) == f"{tmp_path}/a/x-*.parquet"
    assert find_beside("a", Path("..")) == f"{tmp_path}/a"
