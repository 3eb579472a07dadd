"""Which cells are run, and what happens when one cannot be."""

import json
import shutil

import pytest
from support import plans, report_fixture, tables

from experiments import running
from experiments.tables import filling
from experiments.tables.filling import fill
from mnemonics_jax import data
from mnemonics_jax.errors import DiskError, UserError
from mnemonics_jax.runs import BusyError, Stopped


@pytest.fixture(scope="module")
def digits():
  return data.load("digits")


def never(*_, **__):
  raise AssertionError("a finished cell was run again")


class Runs:
  """Instead of `running.run`: notes what was started, and makes up results.

  Args:
    errors: by (exemplars, seed), raised instead.
  """

  def __init__(self, errors=()):
    self.started, self._errors = [], dict(errors)

  def __call__(self, settings, _, workdir, **options):
    assert options["base_models"] == workdir.parent / "base_models"
    (seed,) = settings.seeds
    self.started.append((settings.exemplars, seed))
    if self.started[-1] in self._errors:
      raise self._errors[self.started[-1]]
    report_fixture.write(workdir, seeds=(seed,), exemplars=settings.exemplars)


def test_a_failing_cell_does_not_stop_the_others(
  tmp_path, digits, monkeypatch, capsys
):
  request = tables.request(
    tmp_path, rows="herding,mnemonics", seeds="0,1", phases="2"
  )
  error = UserError("", "seed 0: the loss is not finite", "lower `batch_size`")
  runs = Runs({("herding", 0): error})
  monkeypatch.setattr(running, "run", runs)
  fill(request, digits)
  assert runs.started == [
    (kind, seed) for seed in (0, 1) for kind in ("herding", "mnemonics")
  ]
  record, text, _ = tables.written(request)
  assert "78.00 (1 failed)" in text
  assert record["cells"]["herding/n2/seed_0"]["reason"] == (
    "seed 0: the loss is not finite; lower --batch_size."
  )
  output = capsys.readouterr().out
  assert "Cell 1 of 4: herding, not adjusted · N = 2 · seed 0" in output
  assert "Cell 4 of 4" in output and "left" in output

  # Again: only the failed one is tried, and now it works.
  runs = Runs()
  monkeypatch.setattr(running, "run", runs)
  fill(request, digits)
  assert runs.started == [("herding", 0)]
  assert "failed" not in tables.written(request)[1]


@pytest.mark.parametrize(
  "error",
  [DiskError("", "full", "make room"), Stopped(143), OSError("no such device")],
)
def test_what_would_stop_every_cell_stops_the_table(
  tmp_path, digits, monkeypatch, error
):
  request = tables.request(tmp_path, rows="herding", seeds="0,1", phases="2")
  runs = Runs({("herding", 0): error})
  monkeypatch.setattr(running, "run", runs)
  with pytest.raises(type(error)):
    fill(request, digits)
  assert runs.started == [("herding", 0)]


def test_a_cell_that_another_command_runs_is_left_to_it(
  tmp_path, digits, monkeypatch, capsys
):
  request = tables.request(tmp_path, rows="herding", seeds="0,1", phases="2")
  busy = BusyError("workdir", "`workdir=here` is in use", "wait")
  monkeypatch.setattr(running, "run", Runs({("herding", 0): busy}))
  fill(request, digits)
  cells = tables.written(request)[0]["cells"]
  status = [cells[f"herding/n2/seed_{seed}"]["status"] for seed in (0, 1)]
  assert status == ["pending", "finished"]
  out = capsys.readouterr().out
  assert "Left to another command: --workdir=here is in use; wait." in out


@pytest.mark.parametrize(
  "error",
  [
    BusyError("workdir", "in use", "wait"),
    MemoryError("Here it failed, and there it was tried again."),
  ],
)
def test_a_cell_that_another_command_has_ended_meanwhile_counts(
  tmp_path, digits, monkeypatch, error
):
  request = tables.request(tmp_path, rows="herding", seeds="0,1", phases="2")

  class Meanwhile(Runs):
    def __call__(self, settings, _, workdir, **options):
      tables.make_up(request, data=digits.checksum)
      super().__call__(settings, _, workdir, **options)

  monkeypatch.setattr(running, "run", Meanwhile({("herding", 0): error}))
  sheet = fill(request, digits)
  assert [cell["status"] for cell in sheet.cells] == ["finished"] * 2


def test_a_run_of_other_code_does_not_replace_what_was_written(
  tmp_path, digits, monkeypatch
):
  """Pairs would no longer share their model of phase 0."""
  request = tables.request(tmp_path, rows="herding", seeds="0", phases="2")
  tables.make_up(request, data=digits.checksum)
  monkeypatch.setattr(running, "run", never)
  (before,) = fill(request, digits).cells
  (workdir,) = (request.workdir(*c, digits.checksum) for c in request.cells())
  shutil.rmtree(workdir)
  report_fixture.write(workdir, seeds=(0,), exemplars="herding", offset=0.05)
  config = json.loads((workdir / "config.json").read_text())
  config["environment"]["git_commit"] = "fedcba9"
  (workdir / "config.json").write_text(json.dumps(config))
  (after,) = fill(request, digits).cells
  assert after == before
  (workdir / "results.json").unlink()  # It was interrupted.
  (after,) = fill(request, digits).cells
  assert after == before


@pytest.mark.parametrize("name", ["results.json", "config.json"])
def test_a_cell_with_a_damaged_file_is_run_again_which_mends_it(
  tmp_path, digits, monkeypatch, name
):
  request = tables.request(tmp_path, rows="herding", seeds="0,1", phases="2")
  tables.make_up(request, data=digits.checksum)
  cell = *next(iter(request.cells())), digits.checksum
  (request.workdir(*cell) / name).write_text("{")
  runs = Runs()
  monkeypatch.setattr(running, "run", runs)
  fill(request, digits)
  assert runs.started == [("herding", 0)]


def test_what_cannot_be_run_is_refused_before_anything_is(
  tmp_path, digits, monkeypatch
):
  request = tables.request(tmp_path, rows="herding", seeds="0", phases="9")
  monkeypatch.setattr(running, "run", never)
  with pytest.raises(UserError, match="`phases=9`"):
    fill(request, digits)
  assert not list(tmp_path.iterdir())


def test_phase_0_is_expected_once_for_those_who_share_it(tmp_path, digits):
  rows = {
    "first": {"settings": {}},
    "same": {"settings": {"rehearsal": 4, "distill": False}},
    "longer": {"settings": {"base_epochs": 6}},
    "fewer": {"settings": {"base_classes": 4}},
    "other": {"settings": {"order_seed": 3}},
  }
  path = plans.write(tmp_path / "plan.yaml", rows=rows, seeds=[0, 1])
  asked = tables.asked(plan=str(path), root=str(tmp_path))
  work = filling._work(asked, digits)
  of = lambda row, seed=0: work[f"{row}/n2/seed_{seed}"]
  # The first five of the order have 719 images: 12 steps of 64 in each of 3 epochs.
  assert of("first") - of("same") == pytest.approx(3 * 12)
  assert of("longer") - of("first") == pytest.approx(3 * 12)
  assert of("fewer") > of("same") < of("other")
  assert all(of(row) == of(row, 1) for row in rows)


def test_cells_are_run_once_and_share_the_base_model(
  tmp_path, digits, monkeypatch
):
  request = tables.request(
    tmp_path, table="1", rows="lucir", seeds="0", phases="1", preset="smoke",
    epochs="1", base_epochs="1", images_per_class="8", memory="per_class:2",
    batch_size="16",
  )  # fmt: skip
  fill(request, digits)
  cell = tables.written(request)[0]["cells"]["lucir/n1/seed_0"]
  assert cell["status"] == "finished" and cell["classes_seen"] == [5, 10]
  path = tmp_path / cell["workdir"] / "results.json"
  (run,) = json.loads(path.read_text())["runs"]
  head = [phase["accuracy"]["head"] for phase in run["phases"]]
  assert cell["average"]["final"]["head"] == pytest.approx(sum(head) / 2)
  assert len(list((tmp_path / "base_models").iterdir())) == 1
  monkeypatch.setattr(running, "run", never)
  fill(request, digits)
