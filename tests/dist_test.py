"""The wheel is whole, and what is installed with it is what was looked at."""

from pathlib import Path
import re
import shutil
import subprocess
import sys
import venv
import zipfile

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("mnemonics_jax", "experiments")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
  """Built from a copy: setuptools writes beside what it reads."""
  copy = tmp_path_factory.mktemp("dist")
  ignore = shutil.ignore_patterns("__pycache__")
  for name in PACKAGES:
    shutil.copytree(ROOT / name, copy / name, ignore=ignore)
  for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
    shutil.copy(ROOT / name, copy)
  options = ("--wheel", "--no-isolation", "--outdir", copy / "wheels")
  run(sys.executable, "-m", "build", *options, copy)
  (built,) = (copy / "wheels").iterdir()
  return built


def run(*command, **options):
  done = subprocess.run(
    list(map(str, command)), capture_output=True, text=True, **options
  )
  assert not done.returncode, done.stdout[-2000:] + done.stderr[-2000:]
  return done.stdout


def test_the_wheel_holds_every_file_of_the_packages_and_no_other(wheel):
  packed = {
    name
    for name in zipfile.ZipFile(wheel).namelist()
    if ".dist-info/" not in name
  }
  files = {
    str(path.relative_to(ROOT))
    for name in PACKAGES
    for path in (ROOT / name).rglob("*")
    if path.is_file() and "__pycache__" not in path.parts
  }
  assert packed == files
  assert "mnemonics_jax/py.typed" in packed
  assert "mnemonics_jax/report/style.css" in packed
  assert "mnemonics_jax/report/page.html.j2" in packed
  assert "experiments/paper_tables.yaml" in packed
  assert "experiments/tables/table_1.yaml" in packed


def test_the_wheel_says_what_it_is(wheel):
  with zipfile.ZipFile(wheel) as archive:
    (info,) = {name.split("/")[0] for name in archive.namelist()} - {*PACKAGES}
    metadata = archive.read(f"{info}/METADATA").decode()
    scripts = archive.read(f"{info}/entry_points.txt").decode()
  assert "\nName: mnemonics_jax\n" in metadata
  assert "mnemonics-jax = experiments.__main__:main" in scripts


@pytest.mark.slow
def test_the_wheel_runs_in_an_empty_environment(wheel, tmp_path):
  """With the packages that pip finds for it: needs the network."""
  venv.create(tmp_path / "venv", with_pip=True)
  binaries = tmp_path / "venv" / "bin"
  pip = (binaries / "python", "-m", "pip", "install", "-q")
  run(*pip, wheel, cwd=tmp_path)
  environment = {
    "HOME": str(tmp_path),
    "JAX_PLATFORMS": "cpu",
    "PATH": "/usr/bin:/bin",
  }
  printed = run(
    *(binaries / "mnemonics-jax", "digits", "--preset=smoke"),
    *("--workdir", tmp_path / "run"),
    cwd=tmp_path,
    env=environment,
  )
  assert "report.html" in printed
  assert (tmp_path / "run" / "report.html").stat().st_size > 100_000
  assert (tmp_path / "run" / "results.json").exists()


# Pins and their checksums.


def _pins(name: str) -> dict[str, str]:
  """Versions by package, of a file and of those it includes."""
  found = {}
  for line in (ROOT / name).read_text().splitlines():
    if line.startswith("-r "):
      found |= _pins(line.removeprefix("-r "))
    elif pin := re.match(r"([A-Za-z0-9._-]+)==([^ ;]+)", line):
      found[re.sub(r"[-_.]+", "-", pin[1]).lower()] = pin[2]
  return found


def test_the_lock_holds_the_pins_and_nothing_else():
  assert len(_pins("requirements.lock")) > 100
  assert _pins("requirements.lock") == _pins("requirements-dev.txt")


def test_the_tools_are_locked_with_all_that_they_need():
  wanted, locked = (
    _pins("requirements-tools.txt"),
    _pins("requirements-tools.lock"),
  )
  assert wanted.items() <= locked.items() and len(locked) > len(wanted)


@pytest.mark.parametrize(
  "name", ["requirements.lock", "requirements-tools.lock"]
)
def test_every_package_of_a_lock_has_a_checksum(name):
  entries = re.split(r"\n(?=\S)", (ROOT / name).read_text().strip())
  for entry in entries:
    assert re.match(r"\S+==\S+.*\\\n +--hash=sha256:[0-9a-f]{64}", entry), entry


def test_actions_are_named_by_commit():
  steps = re.findall(
    r"uses: (\S+)", (ROOT / ".github/workflows/ci.yml").read_text()
  )
  assert steps
  for step in steps:
    assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", step), step
