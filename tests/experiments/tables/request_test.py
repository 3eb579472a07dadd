"""What the flags of a table ask for, and which mistakes they may have."""

import pytest
from support import command, tables

from mnemonics_jax.errors import UserError


def test_whole_seeds_come_first(tmp_path):
  request = tables.request(
    tmp_path, rows="mnemonics,herding", seeds="2,0", phases="2,5"
  )
  # Rows in the order of the table, all else in that of the command.
  assert [(row.name, n, seed) for row, n, seed in request.cells()] == [
    (row, n, seed)
    for seed in (2, 0)
    for n in (2, 5)
    for row in ("herding", "mnemonics")
  ]


def test_the_upper_bound_is_a_row_for_those_who_ask(tmp_path):
  names = lambda **flags: [
    row.name for row in tables.request(tmp_path, table="1", **flags).rows
  ]
  assert "joint" not in names()
  assert names(rows="lwf", upper_bound="true") == ["lwf", "joint"]


def test_tables_of_other_settings_have_other_names(tmp_path):
  request = tables.request(tmp_path, memory="per_class:2", transfer="none")
  assert request.name == (
    "table_2_digits_short_memory-per_class-2_transfer-none"
  )


def test_long_lists_of_settings_do_not_make_long_names(tmp_path):
  flags = dict(
    memory="per_class:2", transfer="none", finetune="none", net="resnet32",
    epochs="3", base_epochs="4", batch_size="32", learning_rate="0.012345678",
    weight_decay="0.000123456789", images_per_class="12", order_seed="4294967",
  )  # fmt: skip
  name = tables.request(tmp_path, **flags).name
  assert name.startswith("table_2_digits_short_11-settings-")
  assert len(name) < 60
  assert name == tables.request(tmp_path, **flags).name
  other = tables.request(tmp_path, **(flags | dict(order_seed="4294968")))
  assert other.name != name


def test_settings_are_checked_for_all_seeds_together(tmp_path):
  with pytest.raises(UserError, match="names a seed twice"):
    tables.request(tmp_path, seeds="1,0,1")


BAD_FLAGS = [
  ([], "--table=1, 2, s1 or s2"),
  (["--table=3"], "--table=3"),
  (["--table=2", "--rows=best"], "--rows=random,random_adjust,herding"),
  (["--table=2", "--rows="], "--rows="),
  (["--table=2", "--seeds="], "--seeds=0"),
  (["--table=2", "--seeds=a"], "--seeds=0,1,2"),
  (["--table=2", "--seeds=1,1"], "--seeds"),
  (["--table=2", "--phases=6"], "--phases=6"),
  (["--table=2", "--phases=5,5"], "--phases=5,5"),
  (["--table=2", "--phases="], "--phases"),
  (["--table=2", "--phases=x"], "--phases=x"),
  (["--table=2", "--method=lwf"], "--rows"),
  (["--table=2", "--noadjust"], "--rows"),
  (["--table=2", "--workdir=here"], "--root"),
  (["--table=2", "--fresh"], "--root"),
  (["--table=1", "--memory=total:20"], "--table=s1"),
  (["--table=s1", "--memory=per_class:2"], "--table=1"),
  (["--table=s2", "--nodistill"], "--rows"),
  (["--table=2", "--memory=per_class:1000"], "per_class:140"),
  (["--table=2", "--epochs=0"], "--epochs"),
  (["--table=2", "--dataset=mnist"], "--dataset"),
]


@pytest.mark.parametrize("flags, named", BAD_FLAGS)
def test_mistakes_get_one_sentence_and_exit_code_2(flags, named, tmp_path):
  done = command.call("tables", *flags, cwd=tmp_path)
  command.assert_refused(done, named)
  assert len(done.err.splitlines()) == 1
