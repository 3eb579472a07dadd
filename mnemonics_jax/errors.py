"""The one error that is addressed to a person: what is wrong, and what helps."""

import errno


class UserError(ValueError):
  """Something that only the caller can put right.

  Names of settings stand in backticks, `memory` or `memory=total:5`. The command
  line shows them as its flags; nothing else in a message depends on who reads it.

  >>> error = UserError("phases", "`phases=0` brings nothing new", "use 1 or more")
  >>> str(error)
  '`phases=0` brings nothing new; use 1 or more.'
  >>> error.field
  'phases'

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


class DiskError(UserError):
  """The disk does not do what it should, and would not for what comes next.

  >>> error = DiskError("workdir", "`workdir=my_run` is full", "make room")
  >>> isinstance(error, UserError), str(error)
  (True, '`workdir=my_run` is full; make room.')
  """


DISK_TROUBLE = (
  errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EACCES,
  errno.EPERM, errno.ESTALE, errno.ENOTCONN, errno.EMFILE, errno.ENFILE,
  errno.EFBIG,
)  # fmt: skip
"""What is not the fault of what was asked for, and may pass."""


def remedy(error: OSError) -> str:
  """What helps when a file cannot be written.

  >>> remedy(OSError(errno.ENOSPC, "No space left on device"))
  'make room there'
  """
  if error.errno in (errno.EMFILE, errno.ENFILE):
    return "allow more open files (ulimit -n)"
  if error.errno == errno.EFBIG:
    return "allow larger files (ulimit -f)"
  if error.errno in (errno.ENOSPC, errno.EDQUOT):
    return "make room there"
  return "see to it that it can be written"
