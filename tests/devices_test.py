"""Many devices: virtual ones in a process of their own, and two processes."""

import os
from pathlib import Path
import subprocess
import sys

_ROOT = Path(__file__).parents[1]


def test_eight_virtual_devices_compute_what_one_does():
  flags = os.environ["XLA_FLAGS"] + " --xla_force_host_platform_device_count=8"
  done = subprocess.run(
    [sys.executable, "-m", "pytest", "-q", "tests/eight_devices.py"],
    cwd=_ROOT,
    env=os.environ | {"XLA_FLAGS": flags},
    capture_output=True,
    text=True,
  )
  assert done.returncode == 0, done.stdout
