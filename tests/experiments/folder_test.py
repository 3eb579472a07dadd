"""`experiments.folder`: images of one's own, by the names people use."""

import pytest
from support import command, data_files

from experiments import running


@pytest.fixture
def learned(monkeypatch):
  """What would be learned: settings and data sets, without learning."""
  ran = []
  monkeypatch.setattr(running, "run", lambda *args, **_: ran.append(args[:2]))
  monkeypatch.setattr(running, "show", lambda *_: None)
  return ran


def test_it_needs_a_directory(tmp_path):
  done = command.call("folder", cwd=tmp_path)
  command.assert_refused(done, "--data=DIR")


def test_classes_and_data_have_the_names_that_were_given(tmp_path, learned):
  data_files.write_folder(tmp_path / "images")
  (tmp_path / "names.txt").write_text("cat  Felis catus\n")
  done = command.call(
    "folder", "--data=images", "--name=pets", "--class_names=names.txt",
    "--image_size=9", "--phases=1",
    cwd=tmp_path,
  )  # fmt: skip
  assert not done.code, done.err
  ((settings, dataset),) = learned
  assert dataset.name == "pets" and dataset.image_shape == (9, 9, 3)
  assert dataset.class_names == ("Felis catus", "dog")
  # λ_base is ImageNet's, as for photographs in the paper.
  assert (settings.image_size, settings.less_forget) == (9, 10.0)
