"""Data, checkpoints and results are read, never run.

Whoever made a data set, an archive or a work directory may mean harm: nothing
in them is executed, unpacked, decoded beyond reason or shown as markup.
"""

import ast
import contextlib
import hashlib
import html.parser
import io
import json
import os
from pathlib import Path
import pickle
import re
import struct
import sys
import tarfile

import data_files
import numpy as np
from PIL import ImageFile
import pytest
import report_fixture

from mnemonics_jax import checkpoint, data, report
from mnemonics_jax.data import cifar100, cifar_pickle, tfds_records

ROOT = Path(__file__).parent.parent


# Code in data.


class Malicious:
  """Its pickle is a program that leaves a mark."""

  def __init__(self, marker: Path):
    self.command = f"touch {marker}"

  def __reduce__(self):
    return os.system, (self.command,)


class Watch:
  """Python's own record of what is unpickled or started."""

  events = frozenset(
    {"pickle.find_class", "os.system", "subprocess.Popen", "os.exec"}
  )

  def __init__(self):
    self.seen = None
    sys.addaudithook(self)

  def __call__(self, event, _):
    if self.seen is not None and event in self.events:
      self.seen.append(event)

  @contextlib.contextmanager
  def __getitem__(self, seen):
    self.seen = seen
    try:
      yield
    finally:
      self.seen = None


WATCH = Watch()  # Hooks stay for ever: one for all tests.


def official_directory(path, attack):
  data_files.write_official(path / "cifar", data_files.cifar_arrays())
  (path / "cifar/train").write_bytes(pickle.dumps(attack, 2))
  return lambda: cifar_pickle.read(
    path / "cifar", md5=data_files.md5_sums(path / "cifar")
  )


def official_archive(path, attack):
  official_directory(path, attack)
  data_files.write_archive(path / "cifar.tar.gz", path / "cifar")
  md5 = data_files.md5_sums(path / "cifar")
  return lambda: cifar_pickle.read(path / "cifar.tar.gz", md5=md5)


def cached_arrays(path, attack):
  images = data_files.write_folder(path / "images")
  load = lambda: data.load(
    "folder", images, image_size=8, cache_dir=path / "cache"
  )
  load()
  (entry,) = (path / "cache").iterdir()
  np.save(entry / "train_labels.npy", np.array([attack], object))
  return load


def exemplars_of_a_run(path, attack):
  run = report_fixture.write(path / "run", groups=(1, 1), seeds=(0,))
  np.savez(
    run / "seed_0/phase_01.npz", **{"memory/images": np.array([attack], object)}
  )
  return lambda: report.load_run(run).arrays(0, 1)


def arrays_of_a_checkpoint(path, attack):
  """Every file of arrays is the attack, and the checksums say so, too."""
  saved = path / "checkpoint"
  checkpoint.save(saved, {"a": np.arange(3.0)})
  manifest = json.loads((saved / "manifest.json").read_text())
  for name in manifest["files"]:
    if name.startswith("arrays"):
      (saved / name).write_bytes(pickle.dumps(attack))
      digest = hashlib.sha256((saved / name).read_bytes()).hexdigest()
      manifest["files"][name] = digest
  (saved / "manifest.json").write_text(json.dumps(manifest))
  return lambda: checkpoint.restore(saved)


@pytest.mark.parametrize(
  "plant",
  [
    official_directory,
    official_archive,
    cached_arrays,
    exemplars_of_a_run,
    arrays_of_a_checkpoint,
  ],
)
def test_pickles_are_not_run(tmp_path, plant):
  marker = tmp_path / "marker"
  attack = Malicious(marker)
  with WATCH[seen := []]:
    pickle.loads(pickle.dumps(attack))
  assert marker.exists() and seen  # It works, and would be noticed.
  marker.unlink()
  load = plant(tmp_path, attack)
  with WATCH[seen := []], contextlib.suppress(Exception):
    load()
  assert not marker.exists() and not seen


@pytest.mark.parametrize(
  "attack",
  [
    b"cposix\nsystem\n(U\x04truetR.",
    b"cbuiltins\neval\n(U\x011tR.",
    b"c__builtin__\nexec\n(U\x011tR.",
    b"cnumpy\nload\n(U\x01xtR.",
    b"cnumpy.core.multiarray\nscalar\n.",
    b"\x80\x04\x8c\x05numpy\x8c\x0dndarray.dumps\x93.",
    b"Pid\n.",
  ],
)
def test_the_unpickler_knows_three_names(attack):
  with pytest.raises(pickle.UnpicklingError):
    cifar_pickle.unpickle(attack)


def test_a_tfds_directory_does_not_choose_what_is_imported(
  tmp_path, monkeypatch
):
  (tmp_path / "evil_feature.py").write_text("raise SystemExit('imported')")
  monkeypatch.syspath_prepend(tmp_path)
  directory = tmp_path / "cifar100/3.0.2"
  data_files.write_tfds(directory, data_files.cifar_arrays())
  features = {"pythonClassName": "evil_feature.Evil", "featuresDict": {}}
  (directory / "features.json").write_text(json.dumps(features))
  cifar100.load(
    tmp_path, cache_dir=tmp_path / "cache", per_class=data_files.PER_CLASS
  )
  assert "evil_feature" not in sys.modules


# Modules that run what they read, and calls that may.
RUNNING = {"cloudpickle", "dill", "joblib", "marshal", "pickle", "shelve"}
UNPACKING = {"extract", "extractall", "unpack_archive"}


def dangers(source: str) -> set[str]:
  found = set()
  for node in ast.walk(ast.parse(source)):
    if isinstance(node, ast.Import):
      found |= RUNNING & {name.name.split(".")[0] for name in node.names}
    if isinstance(node, ast.ImportFrom):
      found |= RUNNING & {(node.module or "").split(".")[0]}
    if not isinstance(node, ast.Call):
      continue
    call = ast.unparse(node.func)
    if call in ("eval", "exec", "compile", "yaml.load", "torch.load"):
      found.add(call)
    if isinstance(node.func, ast.Attribute) and node.func.attr in UNPACKING:
      found.add(call)
    if call == "np.load" and "allow_pickle=False" not in ast.unparse(node):
      found.add(call)
  return found


def test_no_source_uses_what_could_run_or_unpack_data():
  assert dangers("import pickle; eval(a); t.extractall(); np.load(f)") == {
    "pickle", "eval", "t.extractall", "np.load",
  }  # fmt: skip
  paths = [
    path
    for package in ("mnemonics_jax", "experiments", "benchmarks")
    for path in (ROOT / package).rglob("*.py")
  ]
  assert len(paths) > 50
  found = {str(p.relative_to(ROOT)): dangers(p.read_text()) for p in paths}
  assert {path: what for path, what in found.items() if what} == {
    # Has the unpickler of the test above.
    "mnemonics_jax/data/cifar_pickle.py": {"pickle"},
  }


# Archives.


def test_archives_are_not_unpacked(tmp_path):
  """Members that point outside or are links are neither written nor read."""
  official = tmp_path / "official"
  md5 = data_files.write_official(official, data_files.cifar_arrays())
  outside = tmp_path / "outside"
  archive = tmp_path / "archive/cifar-100-python.tar.gz"
  archive.parent.mkdir()
  with tarfile.open(archive, "w:gz") as tar:
    for name in ("../outside", str(outside), "x/../../outside"):
      member = tarfile.TarInfo(name)
      member.size = 4
      tar.addfile(member, io.BytesIO(b"evil"))
    for kind, name in (
      (tarfile.SYMTYPE, "cifar-100-python"),
      (tarfile.SYMTYPE, "cifar-100-python/train"),
      (tarfile.LNKTYPE, "cifar-100-python/train"),
    ):
      member = tarfile.TarInfo(name)
      member.type, member.linkname = kind, str(official / "train")
      tar.addfile(member)
    for name in ("test", "meta"):
      tar.add(official / name, f"cifar-100-python/{name}")
  with pytest.raises(data.DataError, match="no file train"):
    cifar_pickle.read(archive, md5=md5)
  names = {path.name for path in tmp_path.iterdir()}
  assert names == {"official", "archive"}
  assert os.listdir(archive.parent) == [archive.name]


# Images.


def jpeg(path, width, height):
  data_files.save_image(path)
  content = bytearray(path.read_bytes())
  frame = content.index(b"\xff\xc0") + 5
  content[frame : frame + 4] = struct.pack(">HH", height, width)
  path.write_bytes(content)


def bmp(path, width, height):
  data_files.save_image(path)
  content = bytearray(path.read_bytes())
  content[18:26] = struct.pack("<ii", width, height)
  path.write_bytes(content)


BOMBS = {"png": data_files.write_bomb, "jpg": jpeg, "bmp": bmp}


@pytest.mark.parametrize("size", [(10000, 10000), (60000, 60000)])
@pytest.mark.parametrize("kind", BOMBS)
def test_huge_images_are_refused_undecoded(tmp_path, monkeypatch, kind, size):
  images = data_files.write_folder(tmp_path / "images")
  BOMBS[kind](images / f"train/cat/bomb.{kind}", *size)
  load, largest = ImageFile.ImageFile.load, []

  def watched(image):
    largest.append(image.width * image.height)
    return load(image)

  monkeypatch.setattr(ImageFile.ImageFile, "load", watched)
  with pytest.raises(data.DataError) as error:
    data.load("folder", images, strict=True, cache_dir=tmp_path / "cache")
  assert re.search(rf"train/cat/bomb\.{kind}: .*pixels", str(error.value))
  assert max(largest) == 20 * 16


def test_huge_images_in_records_are_refused_undecoded(tmp_path, monkeypatch):
  from tensorflow_datasets.proto import tf_example_pb2

  data_files.write_tfds(tmp_path / "3.0.2", data_files.cifar_arrays())
  data_files.write_bomb(tmp_path / "bomb.png", 5000, 5000)
  feature = (example := tf_example_pb2.Example()).features.feature
  feature["image"].bytes_list.value.append((tmp_path / "bomb.png").read_bytes())
  body = example.SerializeToString()
  (tmp_path / "3.0.2/cifar100-test.tfrecord-00000-of-00001").write_bytes(
    struct.pack("<Q", len(body)) + b"crc_" + body + b"crc_"
  )
  sizes = []
  load = ImageFile.ImageFile.load
  monkeypatch.setattr(
    ImageFile.ImageFile,
    "load",
    lambda image: sizes.append(image.size) or load(image),
  )
  with pytest.raises(data.DataError, match=r"--data_dir: .* damaged"):
    tfds_records.read(tmp_path / "3.0.2")
  assert set(sizes) == {(32, 32)}


# Names in pages.

NAMES = [
  "<script>document.title = 'run'</script>",
  '"><img src=x onerror="document.title = \'run\'">',
  "' onmouseover='document.title = 1",
  "</figcaption></title></style><iframe src=https://example.com>",
  "&lt;b&gt; {{ 7 * 7 }} $x_1",
]


class Page(html.parser.HTMLParser):
  """What a browser would make of a page."""

  def __init__(self, text: str):
    super().__init__()
    self.tags, self.attributes, self.text = set(), [], []
    self.feed(text)

  def handle_starttag(self, tag, attrs):
    self.tags.add(tag)
    self.attributes += attrs

  def handle_data(self, data):
    self.text.append(data)


def test_names_are_shown_and_not_run(tmp_path, monkeypatch):
  from mnemonics_jax.report import page as page_lib

  # Drawing takes long, and names in pictures are pixels.
  monkeypatch.setattr(page_lib.figures, "write_figures", lambda run: [])
  monkeypatch.setattr(page_lib.figures, "write_comparison", lambda *_: [])
  runs = []
  for label in ("one", NAMES[0].replace("/", "")):
    path = report_fixture.write(tmp_path / label, seeds=(0,), names=NAMES)
    results = json.loads((path / "results.json").read_text())
    results["title"] = f"{NAMES[1]} · {NAMES[2]}"
    results["dataset"] = results["exemplars"] = NAMES[3]
    (path / "results.json").write_text(json.dumps(results))
    config = json.loads((path / "config.json").read_text())
    config["command"] = NAMES[0]
    config["settings"] |= {NAMES[1]: NAMES[2], "data": f"{NAMES[3]}/{label}"}
    (path / "config.json").write_text(json.dumps(config))
    runs.append(path)
  single = report.build(runs[:1]).read_text()
  compared = report.build(runs, tmp_path / "both.html").read_text()
  for text in (single, compared):
    page = Page(text)
    assert not page.tags & {"script", "iframe", "object", "embed", "form"}
    for name, value in page.attributes:
      assert not name.startswith("on")
      if name in ("src", "href"):
        assert value.startswith(("data:", "#"))
    # Shown whole, in captions and where an image has to be described.
    shown = "".join(page.text)
    described = [value for name, value in page.attributes if name == "alt"]
    for name in NAMES:
      assert name in shown and name in described
    # Even what slipped through could not act.
    policy = [value for name, value in page.attributes if name == "content"]
    assert any(value.startswith("default-src 'none'") for value in policy)


# Packages.


def test_the_audited_set_is_exact():
  """`make audit` looks up these versions and no others."""
  lines = (ROOT / "requirements.txt").read_text().splitlines()
  lines += (ROOT / "requirements-dev.txt").read_text().splitlines()
  loose = [
    line
    for line in lines
    if line and not re.match(r"#|-r |[\w.-]+(\[\w+\])?==[\w.]+($| ;)", line)
  ]
  assert not loose
  assert "audit:" in (ROOT / "Makefile").read_text()
