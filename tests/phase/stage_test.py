"""A stage tells where it is, and finds its own entries in the journal."""

from mnemonics_jax.phase import Journal, Stage
from mnemonics_jax.progress import StepReport


class _Noted(Journal):
  """A journal that writes down who asks for what."""

  def __init__(self, known=None):
    self.calls, self.known = [], known

  def finished(self, entry):
    self.calls.append(("finished", entry))

  def finish(self, entry, value):
    self.calls.append(("finish", entry, value))
    return value

  def resume(self, entry, like):
    self.calls.append(("resume", entry))
    return self.known

  def offer(self, entry, state):
    self.calls.append(("offer", entry, state))


def test_nobody_needs_to_listen():
  stage = Stage().begin()
  stage.tell(0, 3)
  stage.offer({"state": 1})
  like = {"state": 0}
  assert stage.resume(like) is like
  assert stage.finished() is None
  assert stage.finish(7) == 7
  assert not stage.journal.started(stage.entry)


def test_reports_say_where_the_stage_is():
  told = []
  stage = Stage(2, "adjust", told.append).begin()
  stage.tell(1, 4)
  stage.tell(0, 4, 3, 9)
  stage.tell(3, 4, 9, 9, {"loss": 0.5})
  assert told == [
    StepReport(2, "adjust", 0, 1, 0, 1, None),
    StepReport(2, "adjust", 1, 4, 1, 1, None),
    StepReport(2, "adjust", 0, 4, 3, 9, None),
    StepReport(2, "adjust", 3, 4, 9, 9, {"loss": 0.5}),
  ]


def test_parts_of_a_stage_have_entries_of_their_own():
  journal = _Noted(known="earlier")
  whole = Stage(name="exemplars", journal=journal)
  part = whole._replace(part="1")
  assert whole.resume("begin") == "earlier"
  whole.offer("here")
  assert part.finished() is None
  assert part.finish(3) == 3
  assert journal.calls == [
    ("resume", "exemplars"),
    ("offer", "exemplars", "here"),
    ("finished", "exemplars_1"),
    ("finish", "exemplars_1", 3),
  ]
