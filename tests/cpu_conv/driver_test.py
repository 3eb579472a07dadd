"""conv.cc in other builds: vectors of every width, sanitizers, clang++, ARM."""

from pathlib import Path
import platform
import shutil
import subprocess

import pytest

from mnemonics_jax.cpu_conv import build

DRIVER = Path(__file__).with_name("driver.cc")

try:
  COMPILER = build.find_compiler()
except build.BuildError:
  COMPILER = None
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")
needs_x86 = pytest.mark.skipif(
  platform.machine() != "x86_64", reason="not an x86-64"
)


def compiled(folder, *flags, compiler=COMPILER):
  """The driver, built with these flags."""
  program = folder / "driver"
  options = ["-std=c++17", "-pthread", f"-I{build.SOURCE.parent}", *flags]
  command = build.compile_command([compiler, *options], program)
  command[command.index(str(build.SOURCE))] = str(DRIVER)
  done = subprocess.run(command, capture_output=True, text=True)
  assert done.returncode == 0, done.stderr
  return program


def run(*command):
  done = subprocess.run(command, capture_output=True, text=True)
  assert done.returncode == 0, done.stdout + done.stderr
  return done.stdout


def has(*features):
  text = Path("/proc/cpuinfo")
  return text.exists() and set(features) <= set(text.read_text().split())


@needs_compiler
@needs_x86
@pytest.mark.slow
@pytest.mark.parametrize(
  "flags, features, width",
  [
    (("-march=x86-64",), (), 4),
    (("-mavx2", "-mfma"), ("avx2", "fma"), 8),
    (("-march=x86-64-v4",), ("avx512f", "avx512vl", "avx512dq"), 16),
  ],
)
def test_vectors_of_every_width(tmp_path, flags, features, width):
  program = compiled(tmp_path, "-O2", *flags)
  if not has(*features):
    pytest.skip(f"built, but this processor has no {features[0]}")
  assert f"V = {width}," in run(program)


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_sanitizers(tmp_path, sanitizer):
  # Single rounding depends on the flags, the order of sums does not.
  flags = ("-O1", "-g", f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all")
  assert "160 geometries" in run(compiled(tmp_path, *flags))


@pytest.mark.slow
def test_clang(tmp_path):
  clang = shutil.which("clang++")
  if clang is None:
    pytest.skip("no clang++")
  native = "-march=native" if platform.machine() == "x86_64" else "-O2"
  program = compiled(tmp_path, "-O2", native, compiler=clang)
  assert "160 geometries" in run(program)


@pytest.mark.slow
def test_arm(tmp_path):
  cross = shutil.which("aarch64-linux-gnu-g++")
  if cross is None:
    pytest.skip("no cross compiler aarch64-linux-gnu-g++")
  command = build.compile_command([cross, *build.FLAGS], tmp_path / "conv.so")
  done = subprocess.run(command, capture_output=True, text=True)
  assert done.returncode == 0, done.stderr
  program = compiled(tmp_path, "-O2", "-static", compiler=cross)
  emulator = shutil.which("qemu-aarch64")
  if emulator is None:
    pytest.skip("compiled, but there is no qemu-aarch64 to run it")
  assert "160 geometries" in run(emulator, program)
