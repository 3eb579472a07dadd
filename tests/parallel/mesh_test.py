"""Many devices: virtual ones, in processes of their own."""

import mmap
import os
from pathlib import Path
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mnemonics_jax.parallel import mesh

_ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
  "which", ["not slow", pytest.param("slow", marks=pytest.mark.slow)]
)
def test_eight_virtual_devices_compute_what_one_does(which):
  flags = os.environ["XLA_FLAGS"] + " --xla_force_host_platform_device_count=8"
  file = Path(__file__).with_name("eight_devices.py").relative_to(_ROOT)
  done = subprocess.run(
    [sys.executable, "-m", "pytest", "-m", which, str(file)],
    cwd=_ROOT,
    env=os.environ | {"XLA_FLAGS": flags},
    capture_output=True,
    text=True,
  )
  assert done.returncode == 0, done.stdout
  assert " passed" in done.stdout


def test_one_device_shares_nothing():
  images = np.arange(12, dtype=np.float32).reshape(3, 4)
  with mesh.use(1):
    assert mesh.device_count() == 1
    tree = {"x": jnp.asarray(images)}
    assert mesh.shard(tree)["x"] is tree["x"]
    assert mesh.replicate(tree)["x"] is tree["x"]
    assert [mesh.round_up(n, parts=2) for n in (1, 7)] == [1, 7]
    rows = jnp.array([2, 0, 2])
    np.testing.assert_array_equal(mesh.take(tree["x"], rows), images[[2, 0, 2]])
    np.testing.assert_array_equal(mesh.put_replicated(images), images)
    padded = mesh.put_sharded(images, 5)
    np.testing.assert_array_equal(padded[:3], images)
    assert isinstance(padded, jax.Array) and not padded[3:].any()


def test_batches_are_read_some_at_a_time_and_not_copied():
  """1,200 images of which the last batch lacks 100, which are black."""
  asked = np.arange(1200).reshape(3, 400)
  asked[2, 300:] = -1
  counts = []

  def read(rows):
    counts.append(len(rows))
    return np.uint8(rows % 251 + 1).repeat(12).reshape(-1, 2, 2, 3)

  found = mesh.put_batches(read, asked, (2, 2, 3))
  assert sum(counts) == 1100 and max(counts) <= 512
  expected = np.where(asked >= 0, asked % 251 + 1, 0)
  assert (np.asarray(found) == expected[..., None, None, None]).all()
  # Memory of the system's own begins with a page; an array of a heap does not.
  assert found.unsafe_buffer_pointer() % mmap.PAGESIZE == 0


_SPLIT = """
import os
os.sched_getaffinity = lambda _: range(4)
import jax
from mnemonics_jax.parallel import mesh
mesh.split_cpu({count})
with mesh.use():
  rows = [mesh.round_up(n, parts=2) for n in (1, 5, 12)]
  print(jax.device_count(), mesh.device_count(), rows)
"""


@pytest.mark.parametrize(
  ("count", "flags", "expected"),
  [
    (1, "", "1 1 [1, 5, 12]"),
    (3, "", "3 3 [6, 6, 12]"),
    (8, "", "4 4 [8, 8, 16]"),  # No more than there are cores.
    (3, "--xla_force_host_platform_device_count=2", "2 2 [4, 8, 12]"),
  ],
)
def test_cores_of_a_cpu_become_devices(count, flags, expected):
  done = subprocess.run(
    [sys.executable, "-c", _SPLIT.format(count=count)],
    cwd=_ROOT,
    env=os.environ | {"XLA_FLAGS": flags},
    capture_output=True,
    text=True,
  )
  assert done.stdout.strip() == expected, done.stderr
