"""Files and folders: what is looked at, what is left out, and what is said of a file that cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvroom.launches.files import LONGEST, decoded, files_in, found_in, is_manifest, launches_in
from kvroom.launches.launch import Found, Launch, Unread

POD = "kind: Pod\nspec:\n  containers:\n  - image: vllm/vllm-openai:v0.28.0\n    args: [Qwen/Qwen3-8B]\n"


def items(folder: Path) -> list[Found]:
    return [item for _, found in launches_in([str(path) for path in files_in(folder)]) for item in found]


def test_manifests_and_scripts_are_read_and_everything_else_is_left_out(tmp_path: Path) -> None:
    for name in ("a.yaml", "sub/b.YML", "sub/deep/c.json", ".git/d.yaml", "node_modules/e.yaml", "f.txt"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(POD)
    (tmp_path / "run.sh").write_text("vllm serve Qwen/Qwen3-8B\n")
    (tmp_path / "build.sh").write_text("make vllm\n")
    names = [path.relative_to(tmp_path).as_posix() for path in files_in(tmp_path)]
    assert names == ["a.yaml", "build.sh", "run.sh", "sub/b.YML", "sub/deep/c.json"]
    assert len([item for item in items(tmp_path) if isinstance(item, Launch)]) == 4


def test_links_are_not_followed_in_a_circle_and_no_file_is_read_twice(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(POD)
    (tmp_path / "again.yaml").symlink_to("a.yaml")
    (tmp_path / "loop").symlink_to(".", target_is_directory=True)
    (tmp_path / "circle.yaml").symlink_to("circle.yaml")
    (tmp_path / "nowhere.yaml").symlink_to("gone.yaml")
    outside = tmp_path.parent / f"{tmp_path.name}-outside.yaml"
    outside.write_text(POD)
    (tmp_path / "outside.yaml").symlink_to(outside)
    assert [path.name for path in files_in(tmp_path)] == ["a.yaml", "outside.yaml"]


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"\x89PNG\0\0vllm", None),
        (b"caf\xe9: 1\n", None),
        (b"vllm: caf\xe9\n", "not UTF-8"),
        (b"# vllm\n" + b"a: b\n" * (LONGEST // 5), "more than 4,000,000 bytes"),
        (b"a: b\n" * (LONGEST // 4), None),
        (b"", None),
    ],
)
def test_what_cannot_be_read_is_an_item_where_it_speaks_of_vllm(tmp_path: Path, data: bytes, says: str | None) -> None:
    (tmp_path / "x.yaml").write_bytes(data)
    found = items(tmp_path)
    assert len(found) == (says is not None)
    for item in found:
        assert isinstance(item, Unread)
        assert says is not None
        assert says in item.problem


def test_utf16_with_its_mark_and_windows_line_ends_are_text() -> None:
    assert decoded(POD.encode("utf-16")) == POD
    assert len(found_in(POD.replace("\n", "\r\n"), "a.yaml")) == 1


def test_the_variables_beside_a_compose_file_are_put_in(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("MODEL=Qwen/Qwen3-8B\n")
    path = tmp_path / "compose.yaml"
    path.write_text("services:\n  a:\n    image: vllm/vllm-openai\n    command: --model ${MODEL}\n")
    ((_, (found,)),) = launches_in([str(path)])
    assert isinstance(found, Launch)
    assert found.tokens == ("--model", "Qwen/Qwen3-8B")


def test_a_script_that_cannot_be_read_is_an_item_with_its_line() -> None:
    (found,) = found_in("set -e\nvllm serve $MODEL\n", "a.sh")
    assert isinstance(found, Unread)
    assert (found.line, "MODEL" in found.problem) == (2, True)


@pytest.mark.parametrize(
    ("name", "text", "manifest"),
    [
        ("-", POD, True),
        ("-", "---\n# Source: x\napiVersion: v1\n", True),
        ("-", "services:\n  a: {}\n", True),
        ("-", '{\n  "kind": "Pod"}', True),
        ("-", "vllm serve m\n", False),
        ("a.sh", POD, False),
        ("a.yaml", "vllm serve m", True),
    ],
)
def test_a_manifest_is_known_by_its_name_or_its_lines(name: str, text: str, manifest: bool) -> None:
    assert is_manifest(name, text) is manifest
