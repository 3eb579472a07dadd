"""The one error that is addressed to a person: what is wrong, and what helps."""

import errno
import numbers
from typing import Any


class UserError(ValueError):
  """Something that only the caller can put right.

  Names of settings stand in backticks, `memory` or `memory=total:5`. The command
  line shows them as its flags; nothing else in a message depends on who reads it.

  Attributes:
    field: the setting, argument or file that is wrong.
    problem: what is wrong with it; the beginning of a sentence.
    fix: what to do about it; the end of that sentence.
  """

  def __init__(self, field: str, problem: str, fix: str):
    super().__init__(field, problem, fix)  # So that copies and pickles work.
    self.field = field
    self.problem = problem
    self.fix = fix

  def __str__(self) -> str:
    return f"{self.problem}; {self.fix}."


def check_count(
  field: str, value: Any, least: int = 0, most: int | None = None
) -> None:
  """Refuses what is not a whole number within these bounds."""
  count = int(value) if isinstance(value, numbers.Integral) else None
  if count is not None and least <= count <= (count if most is None else most):
    return
  words = f"{least} or more" if most is None else f"from {least} to {most}"
  raise UserError(
    field,
    f"`{field}={value}` cannot be used",
    f"it must be a whole number, {words}",
  )


class DiskError(UserError):
  """The disk does not do what it should, and would not for what comes next."""


DISK_TROUBLE = (
  errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EACCES,
  errno.EPERM, errno.ESTALE, errno.ENOTCONN, errno.EMFILE, errno.ENFILE,
  errno.EFBIG,
)  # fmt: skip
"""What is not the fault of what was asked for, and may pass."""


def remedy(error: OSError) -> str:
  """What helps when a file cannot be written."""
  if error.errno in (errno.EMFILE, errno.ENFILE):
    return "allow more open files (ulimit -n)"
  if error.errno == errno.EFBIG:
    return "allow larger files (ulimit -f)"
  if error.errno in (errno.ENOSPC, errno.EDQUOT):
    return "make room there"
  return "see to it that it can be written"
