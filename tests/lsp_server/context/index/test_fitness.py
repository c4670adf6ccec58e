"""Which folders are indexed: projects, and neither a home folder nor a disk of another machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from lsp_server.context.index.scan import PROJECT_MARKS, Mount, mounts, unfit, unfit_disk


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home folder in which everything has a mark."""
    home = tmp_path / "home" / "user"
    home.mkdir(parents=True)
    for folder in (home, *home.parents[:2]):
        (folder / ".git").mkdir()
    return home


def no_mounts() -> list[Mount]:
    return []


def test_neither_a_whole_disk_nor_the_home_folder_is_indexed(home: Path) -> None:
    for folder in (Path(home.anchor), *home.parents, home):
        assert unfit(folder, home, no_mounts) == "it is a whole disk, or holds the home folder"


@pytest.mark.parametrize("mark", PROJECT_MARKS)
def test_a_folder_needs_a_mark_of_a_project(home: Path, mark: str) -> None:
    folder = home / "code" / "thing" / "src"
    folder.mkdir(parents=True)
    assert "has a mark of a project" in str(unfit(folder, home, no_mounts))  # the home folder's own says nothing
    (folder.parent / mark).touch()
    assert unfit(folder, home, no_mounts) is None
    assert unfit(folder.parent, home, no_mounts) is None
    assert unfit(folder.parent.parent, home, no_mounts) is not None


@pytest.mark.parametrize(
    ("mount", "is_fit"),
    [
        (Mount(Path("/"), "ext4", "rw,relatime"), True),
        (Mount(Path("/work/project"), "fakeowner", "rw"), True),  # a folder of the host in a container
        (Mount(Path("/work"), "nfs4", "rw"), False),
        (Mount(Path("/work/project"), "fuse.sshfs", "rw"), False),
        (Mount(Path("/work"), "ntfs", "rw,removable"), False),
        (Mount(Path("/elsewhere"), "nfs4", "rw"), True),
        (Mount(Path("/workshop"), "nfs4", "rw"), True),
    ],
)
def test_disks_of_other_machines_and_removable_ones_are_not_indexed(mount: Mount, is_fit: bool) -> None:
    mounted = [Mount(Path("/"), "ext4"), mount, Mount(Path("/work/project/node_modules"), "nfs4")]
    assert (unfit_disk(Path("/work/project"), lambda: mounted) is None) == is_fit


@pytest.mark.parametrize("place", ["/media/user/stick", "/run/media/user/stick", "/Volumes/Stick"])
def test_what_a_desktop_mounts_is_removable(place: str) -> None:
    mounted = [Mount(Path("/"), "ext4"), Mount(Path(place), "ext4")]
    assert unfit_disk(Path(place) / "project", lambda: mounted) is not None
    assert unfit_disk(Path(place).parent / "project", lambda: mounted) is None


def test_the_mounts_of_this_machine_are_known() -> None:
    assert Path("/") in {each.place for each in mounts()}


def test_the_disk_of_a_project_is_asked_about(home: Path) -> None:
    folder = home / "project"
    folder.mkdir()
    (folder / "go.mod").touch()
    said = unfit(folder, home, lambda: [Mount(home, "cifs", "rw")])
    assert said == f"{home} is on another machine, or removable (cifs rw)"
