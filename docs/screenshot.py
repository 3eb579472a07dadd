"""A picture of the top of a page, small enough for the README.

  make screenshot

runs digits with three seeds, and `python docs/screenshot.py PAGE PICTURE` draws.
"""

import io
from pathlib import Path
import shutil
import subprocess
import sys
import tempfile

from PIL import Image

_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_SIZE = 1200, 1270


def draw(page: Path, picture: Path) -> None:
  """Writes what a browser shows of a page as PNG.

  Args:
    page: an HTML file.
    picture: the file to write.
  """
  browser = next(filter(None, map(shutil.which, _BROWSERS)), None)
  if browser is None:
    sys.exit(f"No browser: install one of {', '.join(_BROWSERS)}.")
  with tempfile.TemporaryDirectory() as directory:
    raw = Path(directory) / "page.png"
    subprocess.run(
      [
        browser, "--headless", "--no-sandbox", "--hide-scrollbars",
        f"--window-size={_SIZE[0]},{_SIZE[1]}", f"--screenshot={raw}",
        page.resolve().as_uri(),
      ],
      check=True,
      capture_output=True,
    )  # fmt: skip
    shot = Image.open(io.BytesIO(raw.read_bytes())).convert("RGB")
  shot = shot.quantize(256, dither=Image.Dither.NONE)
  shot.save(picture, "PNG", optimize=True)


if __name__ == "__main__":
  draw(*map(Path, sys.argv[1:]))
