"""A small plan, and what it asks for."""

from support import tables
import yaml

PLAN = {
  "title": "How often",
  "question": "Does it help?",
  "decision": "Four times if its interval is above zero.",
  "dataset": "digits",
  "preset": "smoke",
  "phases": [2],
  "seeds": [0, 1],
  "settings": {"exemplars": "herding"},
  "rows": {
    "once": {"settings": {"rehearsal": "once"}},
    "four": {
      "label": "four times",
      "settings": {"rehearsal": 4, "distill": False},
      "minus": ["once"],
    },
  },
}


def write(path, **changes):
  """Writes the plan with changes."""
  path.write_text(yaml.safe_dump(PLAN | changes, sort_keys=False))
  return path


def request(tmp_path, settings=None, **given):
  """What a plan asks for, with other settings perhaps, and these flags."""
  changes = {} if settings is None else {"settings": settings}
  path = write(tmp_path / "often.yaml", **changes)
  flags = {"plan": str(path), "root": str(tmp_path / "runs"), **given}
  return tables.asked(**flags)
