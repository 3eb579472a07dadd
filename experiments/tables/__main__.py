"""`python -m experiments.tables`: fills a table and prints it."""

import sys

from experiments import command, launch, running, tables
from experiments.tables import plan as plan_lib


def _fill(flags) -> None:
  plan = plan_lib.from_flags(flags)
  saving = running.saving_policy(flags)
  dataset = running.load(plan.settings(*next(iter(plan.cells()))), flags)
  # Imported here so that a mistake in the flags is answered at once.
  from experiments.tables import views
  from experiments.tables.fill import fill
  from mnemonics_jax.report.render import markdown_table

  sheet = fill(plan, dataset, saving=saving)
  for title, table in [
    *views.quantity_tables(sheet),
    *views.difference_tables(sheet),
  ]:
    print(f"\n{title}\n\n{markdown_table(table)}")
  print(f"\nTable: {plan.file('.html')}")
  if any(cell["status"] == "failed" for cell in sheet.cells):
    sys.exit(1)


if __name__ == "__main__":
  FLAGS = plan_lib.define_flags()
  with (
    command.session(tables.__doc__, FLAGS, instead=plan_lib.DECIDED),
    launch.computing(FLAGS),
  ):
    _fill(FLAGS)
