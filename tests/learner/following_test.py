"""Whoever hears how far a learner is."""

from mnemonics_jax.learner.following import followed
from mnemonics_jax.progress import Note


def test_a_caller_hears_it_alone(capsys):
  heard = []
  with followed(heard.append) as report:
    report(Note("so far"))
  assert heard == [Note("so far")]
  assert capsys.readouterr() == ("", "")


def test_otherwise_a_person_reads_it_beside_what_a_program_prints(capsys):
  with followed(None) as report:
    report(Note("so far"))
  out, err = capsys.readouterr()
  assert not out and "so far" in err
