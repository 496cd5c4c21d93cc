"""The files people have: read literally, refused clearly."""

from __future__ import annotations

from pathlib import Path

import pytest

from shunter.errors import EnvironmentInvalid
from shunter.model.environment import diff
from shunter.sdk.environment import Environment, environment_wire, from_name_or_file
from shunter.sdk.environment_files import find
from shunter.sdk.imports import imported


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_requirements_are_taken_literally_with_the_options_about_where_they_come_from(tmp_path: Path) -> None:
    write(tmp_path, "base.txt", "pandas\n")
    write(tmp_path, "limits.txt", "numpy<2\n")
    path = write(
        tmp_path,
        "requirements.txt",
        "# ours\nnumpy==1.26.4  # pinned\n-r base.txt\n-c limits.txt\n--extra-index-url=https://h/simple\n-f /wheels\n"
        "-e .\n"
        "six==1.0 \\\n    "
        "--hash=sha256:aa \\\n    --hash=sha256:bb\nx; python_version<'3.9'\nn[a]@ https://h/n.whl#sha256=1\n",
    )

    environment = Environment.from_requirements(path)

    assert environment.packages == (
        "numpy==1.26.4", "pandas", "six==1.0 --hash=sha256:aa --hash=sha256:bb", "x; python_version<'3.9'",
        "n[a]@ https://h/n.whl#sha256=1",
    )  # fmt: skip
    assert environment.constraints == ("numpy<2",)
    assert (environment.extra_index_urls, environment.find_links) == (("https://h/simple",), ("/wheels",))


@pytest.mark.parametrize("line", ["-e ../other", "--sorted", "./lib", "--index-url https://me:hush-hush@h/simple"])
def test_lines_that_cannot_travel_are_refused_with_their_place(line: str, tmp_path: Path) -> None:
    path = write(tmp_path, "requirements.txt", f"numpy\n{line}\n")
    with pytest.raises(EnvironmentInvalid, match=r"requirements.txt:2") as caught:
        Environment.from_requirements(path)
    assert "hush" not in str(caught.value)


def test_a_conda_file_gives_python_conda_and_pip_packages(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "conda_dependencies.yml",
        "name: e\nchannels: [conda-forge]\ndependencies:\n- python=3.10.4\n- numpy=1.26\n- pip\n"
        "- pip:\n  - --find-links /w\n  - azureml-core\n"
        "variables: {A: 1}\n",
    )
    environment = Environment.from_conda(path)
    assert environment.python == "3.10.4"
    assert environment.conda_packages == ("numpy=1.26", "pip")
    assert (environment.packages, environment.find_links, environment.env) == (("azureml-core",), ("/w",), {"A": "1"})


@pytest.mark.parametrize(
    ("spec", "python"),
    [("python", ""), ("python>=3.9", ">=3.9"), ("python =3.8", "3.8"), ("conda-forge::python=3.11.*", "3.11")],
)
def test_the_python_of_a_conda_file_is_understood(spec: str, python: str, tmp_path: Path) -> None:
    path = write(tmp_path, "environment.yml", f"dependencies:\n- {spec}\n- python-dateutil\n")
    environment = Environment.from_conda(path)
    assert (environment.python, environment.conda_packages) == (python, ("python-dateutil",))


def test_an_unknown_key_of_a_conda_file_is_refused_with_the_nearest(tmp_path: Path) -> None:
    path = write(tmp_path, "environment.yml", "dependencies: []\nchanels: []\n")
    with pytest.raises(EnvironmentInvalid, match="channels"):
        Environment.from_conda(path)


def test_a_pyproject_gives_its_dependencies_and_with_a_lock_the_lock(tmp_path: Path) -> None:
    path = write(
        tmp_path, "pyproject.toml", '[project]\nname="p"\nrequires-python=">=3.10"\ndependencies=["numpy<2"]\n'
    )
    assert Environment.from_pyproject(path).packages == ("numpy<2",)
    write(tmp_path, "uv.lock", "version = 1\n")
    locked = Environment.from_file(path)
    assert locked.files["uv.lock"] == "version = 1\n"
    assert locked.packages == ()


def test_an_environment_in_our_own_words_is_read(tmp_path: Path) -> None:
    path = write(
        tmp_path, "train.yml", "name: train\npackages: [scikit-learn]\ncontainer: {image: a, mounts: ['/d:/d']}\n"
    )
    environment = Environment.from_file(path)
    assert (environment.name, environment.packages, environment.kind) == ("train", ("scikit-learn",), "container")
    with pytest.raises(EnvironmentInvalid, match="packages"):
        Environment.from_file(write(tmp_path, "bad.yml", "package: [a]\n"))


def test_the_folders_own_file_is_found_requirements_first(tmp_path: Path) -> None:
    assert find(tmp_path) is None
    conda = write(tmp_path, "aml_config/conda_dependencies.yml", "dependencies: []")
    assert find(tmp_path) == conda
    assert find(tmp_path) != write(tmp_path, "requirements.txt", "")
    assert find(tmp_path) == tmp_path / "requirements.txt"


def test_imported_packages_are_taken_at_the_submitters_versions(tmp_path: Path) -> None:
    write(tmp_path, "train.py", "import os, yaml\nimport helper\nfrom sub.x import y\nimport nowhere_to_be_found\n")
    write(tmp_path, "helper.py", "from rich import print\ntry:\n  import azureml.core\nexcept ImportError: pass\n")
    write(tmp_path, "sub/x.py", "from . import z\n")
    write(tmp_path, "broken.py", "import (\n")
    found = imported(tmp_path)
    assert [p.partition("==")[0].lower() for p in found.packages] == ["pyyaml", "rich"]
    assert found.unknown == ("nowhere_to_be_found",)


def test_a_name_is_sent_as_a_reference_and_a_missing_file_is_said(tmp_path: Path) -> None:
    assert environment_wire(from_name_or_file("sklearn:2")) == {"ref": "sklearn:2"}
    with pytest.raises(EnvironmentInvalid, match="no file"):
        from_name_or_file("missing.yml")
    with pytest.raises(EnvironmentInvalid):
        environment_wire("../up")


def test_the_content_of_an_environment_is_known_whatever_its_name() -> None:
    one = Environment(name="a", packages=["x"], env={"A": "1"})
    assert one.content_id == Environment(name="b", version="2", packages=["x"], env={"A": "1"}).content_id
    assert one.content_id != Environment(packages=["y"], env={"A": "1"}).content_id
    assert Environment.from_wire(one.to_wire()) == one


def test_two_environments_are_compared_member_by_member() -> None:
    found = diff(Environment(packages=["a", "b"], python="3.10"), Environment(packages=["b", "c"], env={"K": "v"}))
    assert [(d.what, d.before, d.after) for d in found] == [
        ("env.K", "", "v"), ("packages", "a", ""), ("packages", "", "c"), ("python", "3.10", ""),
    ]  # fmt: skip


def test_an_environment_that_contradicts_itself_is_refused() -> None:
    with pytest.raises(EnvironmentInvalid, match="user-managed"):
        Environment(packages=["a"], interpreter="/usr/bin/python3")
    with pytest.raises(EnvironmentInvalid, match="list of texts"):
        Environment(packages="numpy")
