from absl import flags

from experiments.tables import command
from experiments.tables.command import __doc__ as __doc__
from experiments.tables.command import main as main

flags.adopt_module_key_flags(command)
