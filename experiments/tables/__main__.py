"""The paper's tables, measured: every cell of one table by one command.

  python -m experiments.tables --table=2 --dataset=digits --seeds=0,1,2,3,4
  python -m experiments.tables --table=1 --dataset=cifar100 --phases=5,10,25
  python -m experiments.tables --table=2 --rows=herding,mnemonics --seeds=0,1
  python -m experiments.tables --plan=results/studies/rehearsal.yaml

Rows (choose some with --rows):
  1   LwF, iCaRL, BiC and LUCIR (lwf, icarl, bic, lucir) with herding; each
      with weight transfer and fine-tune besides (lwf_equal...); and each with
      mnemonics (lwf_mnemonics...), which also learns and adjusts the exemplars.
      The paper has the first and the last; the difference to the one between
      them is what learning adds.
  2   LUCIR with weight transfer and fine-tune: random, random_adjust, herding,
      herding_adjust, mnemonics, mnemonics_adjust.
  s1  as 1, with a budget of exemplars for all classes together.
  s2  LUCIR with mnemonics, without and with distillation: nodistill, distill.
Or a comparison of your own: --plan=FILE says which runs are compared, and what will
be decided by them; results/studies has examples.

A cell is a run with one seed in its own directory below --root. A cell that has
finished is not run again. So the same command continues a table that was interrupted,
and several commands with other --seeds, --phases or --rows can fill one table, even at
the same time. After every cell the table is written to ROOT/tables (that of a plan
beside it) as Markdown, HTML and JSON, beside the paper's numbers. The JSON is enough to
go on without the runs, and a plan takes over cells with the same settings from the plans
beside it.
"""

import sys

from experiments import command, launch, running
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
    command.session(__doc__, FLAGS, instead=plan_lib.DECIDED),
    launch.computing(FLAGS),
  ):
    _fill(FLAGS)
