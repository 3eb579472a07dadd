"""`experiments.predict`: what a run takes images for."""

import csv
import json

import numpy as np
from PIL import Image
import pytest
from support import command, finished_run, saved_learner
from support.command import assert_refused

from mnemonics_jax import Learner
from mnemonics_jax.runs.phase_arrays import read_phase_arrays


@pytest.fixture(scope="module")
def home(tmp_path_factory):
  """A run over two seeds, and its test images in folders of their classes."""
  home = tmp_path_factory.mktemp("home")
  finished_run.write(home / "run")
  finished_run.write_folder(home / "data", range(4))
  finished_run.write_folder(home / "other", (0, 5))
  return home


def predict(home, *arguments):
  return command.call("predict", *map(str, arguments), cwd=home)


def rows_of(path):
  return list(csv.DictReader(path.read_text().splitlines()))


def test_accuracy_is_what_the_run_measured(home):
  results = json.loads((home / "run" / "results.json").read_text())
  record = results["runs"][1]["phases"][-1]["accuracy"]
  done = predict(
    home, "run", "data/val", "--seed=1", "--csv=p.csv", "--confusion=c.csv"
  )
  assert not done.code, done.err
  for readout, accuracy in record.items():
    assert f"accuracy {readout}: {100 * accuracy:.2f} %" in done.out
    assert f"({round(24 * accuracy)} of 24)" in done.out
  arrays = read_phase_arrays(home / "run", 1, 1, "confusion/final/")
  counts = arrays["confusion/final/head"]
  header, *matrix = csv.reader((home / "c.csv").read_text().splitlines())
  assert header == ["true", "class 0", "class 1", "class 2", "class 3"]
  assert [row[0] for row in matrix] == header[1:]
  assert np.array_equal([list(map(int, row[1:])) for row in matrix], counts)
  # Printed, too, for it is narrow.
  for row in matrix:
    assert " ".join(row) in " ".join(done.out.split())


def test_probabilities_are_those_of_the_learner(home):
  done = predict(home, "run", "data/val/class 2", "--top=2", "--csv=p.csv")
  assert not done.code, done.err
  learner, known = Learner.load(home / "run")
  shown = finished_run.ALL.test_images[finished_run.ALL.test_labels == 2]
  rows = rows_of(home / "p.csv")
  assert len(rows) == 6 * 2 * 2
  for readout in ("head", "nme"):
    likely = learner.predict_proba(known, shown, readout=readout)
    for i in range(6):
      best = np.argsort(-likely[i])[:2]
      found = [
        row
        for row in rows
        if row["readout"] == readout and row["image"].endswith(f"00{i}.png")
      ]
      assert [row["class"] for row in found] == [known.names[b] for b in best]
      assert [row["rank"] for row in found] == ["1", "2"]
      assert {row["true"] for row in found} == {"class 2"}
      np.testing.assert_allclose(
        [float(row["probability"]) for row in found], likely[i, best], atol=1e-6
      )
  lines = done.out.splitlines()
  assert lines[0].split() == ["image", "true", "head", "%", "nme", "%"]
  assert lines[1].startswith("data/val/class 2/000.png")
  # Columns stand under each other.
  ends = {line.rindex(".") for line in lines[1:13]}
  assert len(ends) == 1


def test_images_of_all_kinds_are_seen_alike(home, tmp_path):
  """As in training: upright, cropped, in colour."""
  # Dark above, bright below: other sizes look the same, other sides do not.
  grey = np.linspace(20, 235, 8).astype(np.uint8)[:, None, None]
  picture = Image.fromarray(np.tile(grey, (1, 8, 3)))
  picture.save(tmp_path / "rgb.png")
  picture.convert("L").save(tmp_path / "grey.png")
  picture.convert("L").convert("P").save(tmp_path / "palette.png")
  picture.convert("CMYK").save(tmp_path / "cmyk.jpg", quality=100)
  exif = Image.Exif()
  exif[0x0112] = 3  # Upside down.
  upside_down = picture.rotate(180)
  upside_down.save(tmp_path / "rotated.jpg", quality=100, exif=exif)
  picture.resize((64, 64), Image.Resampling.NEAREST).save(tmp_path / "big.bmp")
  names = ("rgb", "grey", "palette", "cmyk", "rotated", "big")
  done = predict(home, "run", tmp_path, "--csv=p.csv", "--top=4")
  assert not done.code, done.err
  assert "accuracy" not in done.out  # Nobody has said what they show.
  rows = [row for row in rows_of(home / "p.csv") if row["readout"] == "nme"]
  shares = {
    name: {
      row["class"]: float(row["probability"])
      for row in rows
      if f"/{name}." in row["image"]
    }
    for name in names
  }
  for name in ("grey", "palette"):
    assert shares[name] == shares["rgb"]
  for name in ("cmyk", "rotated", "big"):
    assert shares[name] == pytest.approx(shares["rgb"], abs=0.1)


def test_unreadable_images_are_named_and_skipped(home, tmp_path):
  Image.new("RGB", (8, 8)).save(tmp_path / "good.png")
  (tmp_path / "bad.png").write_text("no image")
  done = predict(home, "run", tmp_path / "good.png", tmp_path / "bad.png")
  assert not done.code
  assert f"Skipped {tmp_path}/bad.png: not a PNG" in done.err
  assert "good.png" in done.out and "bad.png" not in done.out
  done = predict(home, "run", tmp_path / "bad.png", "--csv=never.csv")
  assert done.code == 2 and "None of the images can be read" in done.err
  assert not (home / "never.csv").exists()


def test_folders_of_other_names_are_not_compared(home):
  done = predict(home, "run", "other/val", "--top=1")
  assert not done.code
  assert "6 images are in no folder that names a known class" in done.out
  assert "of 6)" in done.out


def test_folders_may_be_called_as_when_they_were_learned(home, tmp_path):
  """By a name that a file, or ImageNet, gives another one."""
  learner, known = Learner.load(home / "run")
  named = known._replace(names=("tench", "cat", "dog", "owl"))
  learner.save(named, tmp_path / "learner")
  shown = finished_run.write_folder(tmp_path, (0, 1), ("val",)) / "val"
  (shown / "class 0").rename(shown / "n01440764")
  (shown / "class 1").rename(shown / "felis")
  (tmp_path / "names.txt").write_text("felis cat\n")
  arguments = tmp_path / "learner", shown, "--top=1"
  one = predict(home, *arguments)
  assert not one.code and "of 6)" in one.out
  both = predict(home, *arguments, f"--class_names={tmp_path / 'names.txt'}")
  assert not both.code and "of 12)" in both.out
  wrong = predict(home, *arguments, "--class_names=none.txt")
  assert_refused(wrong, "--class_names=none.txt cannot be read")


def test_a_phase_knows_its_classes_only(home):
  done = predict(home, "run", "data/val", "--phase=0", "--top=9", "--csv=p.csv")
  assert not done.code
  assert {row["class"] for row in rows_of(home / "p.csv")} == {
    f"class {i}" for i in range(3)
  }


def test_a_saved_learner_will_do(home, tmp_path):
  saved_learner.write(tmp_path / "saved")
  image = home / "data" / "val" / "class 0" / "000.png"
  done = predict(tmp_path, "saved", image)
  assert not done.code, done.err
  assert "cat" in done.out and "fox" in done.out
