from experiments.tables.command import __doc__ as __doc__
from experiments.tables.command import main as main
