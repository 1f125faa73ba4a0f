"""Whatever is fetched is known beforehand: images by digest, packages by hash; the wheel lists its needs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib import resources
from pathlib import Path

import jsonschema
import pytest
from referencing import Registry, Resource
from tests.architecture.conftest import tracked

ROOT = Path(__file__).resolve().parents[2]
SBOM = ROOT / "requirements" / "ddplaunch.cdx.json"

FROM = re.compile(r"^\s*FROM\s+(?:--\S+\s+)*(\S+)(?:\s+AS\s+(\S+))?", re.IGNORECASE | re.MULTILINE)
ARG = re.compile(r"^\s*ARG\s+(\w+)(?:=(\S*))?", re.IGNORECASE | re.MULTILINE)
IMAGE = re.compile(r"(?:^[\s#-]*|[{,] *|')image:\s*[\"']?([A-Za-z0-9][\w./:@-]*)", re.MULTILINE)
DIGEST = re.compile(r"@sha256:[0-9a-f]{64}$")
# Names that are reserved for examples lead nowhere, and what the tests build is on the machine already.
NOWHERE = re.compile(r"^registry\.(?:example|invalid)(?:\.com)?(?:[:/]|$)")
BUILT_HERE = re.compile(r"^(?:scratch$|ddplaunch-test/)")

INSTALL = re.compile(r"(?:\buv\s+)?\bpip\s+(?:install|sync|download|wheel)\b[^\n]*")
TOOL = re.compile(
    r"\bgo\s+(?:install|get)\s[^\n]*@latest|\bnpm\s+(?:install|i)\s|\bnpx\s|\b(?:curl|wget)\s[^\n]*https?://"
)
# uv checks the hashes of constraints, too.
CHECKED = re.compile(
    r"--require-hashes|uv pip install.* -c"
    r"|--no-deps\b.*--no-build-isolation|--no-build-isolation.*--no-deps\b"
)


def unpinned_bases(dockerfile: str) -> list[str]:
    """Images of FROM but for digests, earlier stages, what is built here, and arguments without a default."""
    dockerfile = re.sub(r"\\\n\s*", " ", dockerfile)
    arguments = dict(ARG.findall(dockerfile))
    stages: set[str] = set()
    found = []
    for image, stage in FROM.findall(dockerfile):
        seen = set()
        while image.startswith("$") and image not in seen:
            seen.add(image)
            image = arguments.get(image.strip("${}"), "")
        if image and image not in stages and not DIGEST.search(image) and not BUILT_HERE.match(image):
            found.append(image)
        stages.add(stage)
    return found


def unpinned_images(text: str) -> list[str]:
    """Values of `image:` that a cluster would pull by a tag."""
    known = (DIGEST.search, NOWHERE.match, BUILT_HERE.match)
    return [image for image in IMAGE.findall(text) if not any(is_known(image) for is_known in known)]


def unchecked_installs(text: str) -> list[str]:
    """Calls of pip that take what an index gives them, and downloads that nothing checks."""
    # A command over several lines, and one that is a list of words, read as one line of a shell.
    flat = re.sub(r"\\\n\s*", " ", text)
    flat = re.sub(r"[\"'],\s*[\"']", " ", flat)
    calls = [call for call in INSTALL.findall(flat) if not CHECKED.search(call)]
    return [*calls, *TOOL.findall(flat)]


@pytest.mark.parametrize("path", tracked("*Dockerfile*"), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_dockerfile_starts_from_a_tag(path: Path) -> None:
    """A base is a digest, an argument without a default, an earlier stage, or built here."""
    assert [] == unpinned_bases(path.read_text("utf-8"))


def test_no_manifest_names_an_image_by_a_tag() -> None:
    """What somebody copies out of docs, charts and examples pulls no stranger's image."""
    paths = tracked("charts/*", "docs/*", "examples/*", "docker/*", "*.md", ".github/*")
    found = {path.name: unpinned_images(path.read_text("utf-8", errors="replace")) for path in paths}

    assert {} == {name: images for name, images in found.items() if images}


def test_every_install_is_checked_against_hashes() -> None:
    """Images, set-up, tests and benchmarks take from an index only what a lock lists."""
    paths = tracked("docker/*", "scripts/*", ".ci/*", ".github/*", "Makefile", "benchmarks/*", "tests/*.py")
    # The examples below, a hint, and a package that lies here and is installed offline.
    said = {Path(__file__).name, "test_api.py", "test_targets.py"}
    found = {
        path.name: unchecked_installs(path.read_text("utf-8")) for path in paths if path.name not in said
    }

    assert {} == {name: calls for name, calls in found.items() if calls}


@pytest.mark.parametrize(
    "line",
    [
        "FROM python:3.12-slim",
        "ARG BASE=python:3.12-slim\nARG BUILD=$BASE\nFROM ${BUILD} AS build",
        "FROM --platform=linux/amd64 registry.example.com/base@sha256:0123",
    ],
)
def test_a_base_by_a_tag_is_found(line: str) -> None:
    """Also where it is the default of an argument, or where the digest is no digest."""
    assert 1 == len(unpinned_bases(line))


@pytest.mark.parametrize(
    "line",
    [
        "  image: busybox",
        "  - image: 'nginx:1.27'",
        "{name: a, image: quay.io/a/b:1}",
        "echo 'image: trainer'",
    ],
)
def test_an_image_by_a_tag_is_found(line: str) -> None:
    """In a manifest, and in a command of a page."""
    assert 1 == len(unpinned_images(line))
    assert [] == unpinned_images(
        "image: quay.io/a/b@sha256:" + "0" * 64 + "\nthe code in the image: one path"
    )


@pytest.mark.parametrize(
    "line",
    [
        "RUN pip install torch",
        "RUN pip install --no-deps \\\n    torch",
        'words = [sys.executable, "-m", "pip", "download", "py-spy"]',
        "uv pip install --python x pytest==8",
        "go install sigs.k8s.io/kind@latest",
        "curl --location https://registry.example/tool | sh",
    ],
)
def test_an_install_without_hashes_is_found(line: str) -> None:
    """In a shell's words, over several lines, and as a list in Python."""
    assert 1 == len(unchecked_installs(line))
    assert [] == unchecked_installs(
        "pip install --require-hashes \\\n -r lock.txt\npip install --no-deps --no-build-isolation ."
    )


def test_the_sbom_is_what_the_lock_says() -> None:
    """Whoever changes the lock or the version runs `make lock`, which writes the SBOM as well."""
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "generate-sbom", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (0, "") == (done.returncode, done.stderr)


def test_the_sbom_is_cyclonedx() -> None:
    """The schemas are those that the standard's own library carries."""
    folder = resources.files("cyclonedx.schema") / "_res"
    schemas = {
        name: json.loads((folder / f"{name}.SNAPSHOT.schema.json").read_text("utf-8"))
        for name in ("bom-1.6", "spdx", "jsf-0.82")
    }
    registry = Registry().with_resources(
        (each["$id"], Resource.from_contents(each)) for each in schemas.values()
    )

    jsonschema.Draft7Validator(schemas["bom-1.6"], registry=registry).validate(
        json.loads(SBOM.read_text("utf-8"))
    )


def test_the_sbom_lists_what_the_launcher_needs_and_with_which_extra() -> None:
    """PyYAML is needed always, the Kubernetes client with its extra alone; torch is the user's own."""
    document = json.loads(SBOM.read_text("utf-8"))
    scopes = {each["name"]: each["scope"] for each in document["components"]}

    assert ("required", "optional") == (scopes["pyyaml"], scopes["kubernetes"])
    assert "torch" not in scopes
