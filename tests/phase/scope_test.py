"""What SGD moves, on variables small enough to write down."""

from mnemonics_jax.phase.sgd import merge, trainable

VARIABLES = {
  "params": {
    "backbone": {
      "Block_0": {"Conv_0": {"kernel": 1}, "BatchNorm_0": {"scale": 2}}
    },
    "head": {"weight": 3},
  },
  "batch_stats": {"mean": 4},
  "transfer": {"Block_0": {"Conv_0": {"scale": 5}}},
}


def test_all_is_every_parameter():
  assert trainable(VARIABLES, "all") == {"params": VARIABLES["params"]}


def test_head_is_the_head():
  assert trainable(VARIABLES, "head") == {"params": {"head": {"weight": 3}}}


def test_transfer_leaves_kernels_frozen():
  params = {
    "backbone": {"Block_0": {"Conv_0": {}, "BatchNorm_0": {"scale": 2}}},
    "head": {"weight": 3},
  }
  expected = {"params": params, "transfer": VARIABLES["transfer"]}
  assert trainable(VARIABLES, "transfer") == expected


def test_merging_a_part_back_changes_nothing_else():
  for scope in ("all", "head", "transfer"):
    assert merge(VARIABLES, trainable(VARIABLES, scope)) == VARIABLES
  merged = merge(VARIABLES, {"params": {"head": {"weight": 9}}})
  assert merged["params"]["head"] == {"weight": 9}
  assert merged["params"]["backbone"] is VARIABLES["params"]["backbone"]
  assert VARIABLES["params"]["head"] == {"weight": 3}
