"""Whole phases on a tiny data set."""

import dataclasses

import jax
import numpy as np
import pytest
from support import compilations, journals, tiny

from mnemonics_jax import memory, methods, phase
from mnemonics_jax.exemplars import choose, learn
from mnemonics_jax.phase import evaluate, run
from mnemonics_jax.phase.evaluate import extract


def _run(config, stream, seed=0, forget=lambda i: None):
  state, results = phase.begin_run(seed, config), []
  for i, data in enumerate(stream):
    state, result = phase.run_phase(state, data, config)
    results.append(result)
    forget(i)
  return state, results


def _slow(*values):
  return pytest.param(*values, marks=pytest.mark.slow)


@pytest.mark.parametrize(
  "name, options",
  [
    ("lucir", dict(exemplars="mnemonics", adjust=True, transfer="in_out")),
    _slow("lwf", dict(exemplars="mnemonics", memory=memory.Total(12))),
    *(
      _slow(name, dict(exemplars=exemplars, adjust=True))
      for name in ("lwf", "icarl", "e2e", "bic", "lucir")
      for exemplars in ("random", "herding", "mnemonics")
    ),
  ],
)
def test_results_do_not_depend_on_old_raw_data(name, options):
  """After its phase a class's images are overwritten; nothing changes."""
  method = methods.METHODS[name]()
  config, stream = tiny.setup(method, finetune="all", **options)
  honest, _ = _run(config, stream)
  data = tiny.dataset()
  config, stream = tiny.setup(method, finetune="all", data=data, **options)

  def forget(i):
    old = data.train_labels < sum(stream.classes_per_phase[: i + 1])
    data.train_images[old] = 0

  blind, _ = _run(config, stream, forget=forget)
  assert not data.train_images.any()
  jax.tree.map(np.testing.assert_array_equal, honest.variables, blind.variables)
  np.testing.assert_array_equal(honest.memory.images, blind.memory.images)


def test_the_memory_holds_what_was_learned_and_adjusted():
  config, stream = tiny.setup(methods.LwF(), exemplars="mnemonics", adjust=True)
  state = phase.begin_run(0, config)
  state, _ = phase.run_phase(state, stream[0], config)
  state, result = phase.run_phase(state, stream[1], config)
  images, labels = memory.flat(state.memory)
  for name, mine in (("adjust", labels < 3), ("exemplars", labels == 3)):
    before, after, of = result.changed[name]
    assert (before != after).any(), name
    np.testing.assert_array_equal(images[mine], after)
    np.testing.assert_array_equal(labels[mine], of)


def test_same_seed_same_numbers_other_seed_other_numbers():
  config, stream = tiny.setup(methods.LwF())
  one, _ = _run(config, stream, seed=0)
  two, _ = _run(config, stream, seed=0)
  other, _ = _run(config, stream, seed=1)
  jax.tree.map(np.testing.assert_array_equal, one.variables, two.variables)
  weight = lambda s: np.asarray(s.variables["params"]["head"]["weight"])
  assert (weight(one) != weight(other)).all()


def test_a_phase_reports_its_stages_in_order():
  """Those of Algorithm 1: train, learn, adjust, fine-tune, evaluate."""
  told = []
  config, stream = tiny.setup(
    methods.LwF(), exemplars="mnemonics", adjust=True, finetune="head"
  )
  state, _ = phase.run_phase(phase.begin_run(0, config), stream[0], config)
  phase.run_phase(state, stream[1], config, report=told.append)
  begun = [step.stage for step in told if step.step == 0]
  assert begun == [
    *("train", "exemplars", "adjust", "evaluate", "finetune", "evaluate")
  ]
  assert {step.phase for step in told} == {1}
  epochs = lambda stage: [
    step.epoch
    for step in told
    if step.stage == stage and step.metrics is not None
  ]
  assert epochs("train") == list(range(8))
  assert epochs("exemplars") == [0, 1]
  assert epochs("adjust") == [0, 1, 2, 3]
  assert epochs("finetune") == [0]


def test_a_phase_continues_from_every_moment():
  config, stream = tiny.setup(
    methods.LUCIR(), exemplars="mnemonics", adjust=True, finetune="all",
    train=phase.Schedule(2, 0.05, (), batch_size=16),
  )  # fmt: skip
  state, _ = phase.run_phase(phase.begin_run(0, config), stream[0], config)
  whole = phase.run_phase(state, stream[1], config)
  again, journal = journals.in_pieces(
    lambda journal: phase.run_phase(state, stream[1], config, journal=journal)
  )
  for after, result in (again, whole):
    assert after.key == state.key and result.phase == 1
  states = again[0]._replace(key=None), whole[0]._replace(key=None)
  jax.tree.map(np.testing.assert_array_equal, *states)
  jax.tree.map(np.testing.assert_array_equal, again[1], whole[1])
  assert set(journal.offers) == {"train", "exemplars", "adjust", "finetune"}


def test_a_caller_may_bring_a_model():
  """Which is then evaluated, and handed over as it is."""
  config, stream = tiny.setup(methods.LwF())
  mine = config.model.init(jax.random.key(7))
  state, _ = phase.run_phase(
    phase.begin_run(0, config), stream[0], config, train=lambda *_: mine
  )
  jax.tree.map(np.testing.assert_array_equal, state.variables, mine)


@pytest.mark.parametrize("made", ["herding", "random", "mnemonics"])
def test_images_pass_a_trained_model_once(monkeypatch, made):
  """Also if the head is fine-tuned: the features stay what they were."""
  config, stream = tiny.setup(methods.LwF(), exemplars=made, finetune="head")
  state, _ = phase.run_phase(phase.begin_run(0, config), stream[0], config)
  passed = []
  for module, name in [
    (choose, "extract_features"),
    (learn, "extract_features"),
    (evaluate, "extract_features"),
    (evaluate, "extract"),
  ]:
    original = getattr(module, name)
    monkeypatch.setattr(
      module,
      name,
      lambda *a, original=original: passed.append(len(a[3])) or original(*a),
    )
  phase.run_phase(state, stream[1], config)
  new, old, test, kept = 12, 3 * 3, 4 * 6, 4 * 3
  made_from = {"herding": new, "random": 0, "mnemonics": new + old}[made]
  assert sum(passed) == made_from + test + kept


def test_results_are_those_of_the_model_that_is_handed_over(monkeypatch):
  """After the fine-tune, which here brings another model altogether."""
  config, stream = tiny.setup(methods.LwF(), finetune="all")
  trained, tuned = (config.model.init(jax.random.key(seed)) for seed in (7, 8))
  monkeypatch.setattr(run, "finetune", lambda *_: tuned)
  state, result = phase.run_phase(
    phase.begin_run(0, config), stream[0], config, train=lambda *_: trained
  )
  jax.tree.map(np.testing.assert_array_equal, state.variables, tuned)
  images, labels = stream[0].test_images, stream[0].test_labels
  found = {}
  for moment, variables in (("trained", trained), ("final", tuned)):
    features, logits = extract(config.model, config.method, variables, images)
    guess = logits[:, :3].argmax(-1)
    found[moment] = np.zeros((3, 3), int)
    np.add.at(found[moment], (labels, guess), 1)
    np.testing.assert_array_equal(
      result.confusion[moment]["head"], found[moment]
    )
  assert (found["trained"] != found["final"]).any()
  np.testing.assert_array_equal(result.test_features[0], features)


def _compilations(policy):
  """Programs compiled in each of six phases."""
  # An epoch is a pass over the data: phases take different numbers of steps.
  recipe = dataclasses.replace(tiny.RECIPE, steps_per_epoch=None, batch_size=8)
  config, stream = tiny.setup(
    methods.BiC(),
    split=(1,) * 6,
    memory=policy,
    bilevel=recipe,
    finetune="head",
    transfer="out",
    exemplars="mnemonics",
    adjust=True,
  )
  totals = [0]
  with compilations.counted() as count:
    _run(config, stream, forget=lambda _: totals.append(count.programs))
  return np.diff(totals)


@pytest.mark.parametrize(
  "policy",
  [
    memory.PerClass(3),
    pytest.param(memory.Total(18), marks=pytest.mark.slow),
  ],
)
def test_everything_is_compiled_in_the_first_two_phases(policy):
  jax.clear_caches()
  compiled = _compilations(policy)
  assert compiled[0] > 0 and compiled[1] > 0
  assert compiled[2:].tolist() == [0] * 4
